"""Parse a JAAS login configuration, the format of Kafka's setting sasl.jaas.config: one login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";

Words may be in quotation marks, with Java's escapes, and comments are Java's. Errors quote nothing of the text, which
contains passwords, even in an unexpected place. Source: Kafka's JaasConfig and the JDK's StreamTokenizer.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY: Final = "sasl.jaas.config"
SIZE_MAX: Final = 1024 * 1024
"""Characters; a longer text is refused unread."""

MODULES: Final = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM",
    "OAuthBearerLoginModule": "OAUTHBEARER",
}
"""The last part of a login module's name → the kind of mechanism it is for; the rest names Java packages."""

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<word>[^\s"'=;/\\]+)|(?P<mark>[=;])""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-3]?[0-7]{1,2})|(?P<character>.))", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """A login module and its options. `kind` is PLAIN, SCRAM or OAUTHBEARER."""

    kind: str
    options: dict[str, str]


def parse(text: str, key: str = KEY) -> LoginModule:
    """Parse a text with one login module. ConfigError if it is invalid; `key` is the setting that the error names."""
    if len(text) > SIZE_MAX:
        raise ConfigError(key, f"is longer than {SIZE_MAX} characters")
    tokens = _tokens(text, key)
    name = _word(tokens, key, "a login module")
    kind = MODULES.get(name.rpartition(".")[2])
    if kind is None:
        raise ConfigError(key, f"unknown login module; expected {' or '.join(MODULES)}")
    if _word(tokens, key, "a control flag").lower() not in _FLAGS:
        raise ConfigError(key, f"the control flag must be one of {', '.join(sorted(_FLAGS))}")
    options: dict[str, str] = {}
    for mark, name in tokens:
        if mark == ";":
            if next(tokens, None) is not None:
                raise ConfigError(key, "must hold one login module, with nothing after its semicolon")
            return LoginModule(kind, options)
        if mark or next(tokens, None) != ("=", ""):
            raise ConfigError(key, f"option {len(options) + 1} is not of the form name=value")
        options[name] = _word(tokens, key, f"a value of option {len(options) + 1}")
    raise ConfigError(key, "does not end with a semicolon")


def _word(tokens: Iterator[tuple[str, str]], key: str, what: str) -> str:
    mark, word = next(tokens, (";", ""))
    if mark:
        raise ConfigError(key, f"lacks {what}")
    return word


def _tokens(text: str, key: str) -> Iterator[tuple[str, str]]:
    """Split the text into tokens. Yield ("", word) for a word, and (mark, "") for "=" or ";"."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(key, f"cannot be parsed from character {at + 1}")
        at = match.end()
        if match["mark"]:
            yield match["mark"], ""
        elif match["word"] is not None:
            yield "", match["word"]
        elif match["blank"] is None:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield "", _ESCAPE.sub(_unescaped, quoted)


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"]:
        return chr(int(match["octal"], 8))
    return _ESCAPED.get(match["character"], match["character"])
