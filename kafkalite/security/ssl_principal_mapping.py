"""Map certificate subjects to principals with Kafka's ssl.principal.mapping.rules (KIP-371, SslPrincipalMapper).

Patterns are compiled by RE2, so that no subject can make a match take long. Patterns that RE2 does not support, with
lookaround or backreferences, are rejected at start.

Thread rule: immutable; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.regex import compiled
from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY: Final = "ssl.principal.mapping.rules"

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|\Z)"
)
_REPLACEMENT: Final = re.compile(r"\\(?P<plain>.)|\$(?P<digits>[0-9]+)", re.DOTALL)


class Rule(NamedTuple):
    """One mapping rule. `pattern` is None for the rule DEFAULT, which keeps the name."""

    pattern: Any
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the principal's name for a distinguished name; None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        groups = (match.group(0), *match.groups())
        text = _REPLACEMENT.sub(lambda found: _replaced(found, groups), self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


class PrincipalRules:
    """The mapping rules of a listener."""

    def __init__(self, text: str) -> None:
        """Parse the rules. ConfigError if they are invalid."""
        self._rules = list(_parse(text or "DEFAULT"))

    def name_of(self, distinguished_name: str) -> str:
        """Return the principal's name for a distinguished name. ValueError if no rule matches."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise ValueError(f"no rule of {KEY} matches {distinguished_name[:256]!r}")


def _parse(text: str) -> Iterator[Rule]:
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ConfigError(KEY, f"must be DEFAULT or RULE:pattern/replacement/[LU], not {text[at : at + 80]!r}")
        at = match.end()
        if match["default"]:
            yield Rule(None, "", "")
        else:
            yield Rule(_compiled(match["pattern"]), match["replacement"], match["case"])


def _compiled(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except ValueError as error:
        raise ConfigError(KEY, f"pattern {pattern[:80]!r}: {error}") from None


def _replaced(found: re.Match[str], groups: tuple[str | None, ...]) -> str:
    """Expand an escape or a group reference in a replacement.

    `\\x` becomes x. In `$12`, the longest number of an existing group counts; if there is none, the text is unchanged.
    """
    if found["plain"] is not None:
        return found["plain"]
    digits = found["digits"]
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) < len(groups):
            return (groups[int(digits[:size])] or "") + digits[size:]
    return found[0]
