"""Subscriptions by regular expression, in RE2's syntax (KIP-848): which topics an expression means.

An expression comes from a client and is tried on every topic's name, so it must not be able to hang the broker. Java's
consumers check their expressions by the same syntax (RE2/J is what Kafka's broker uses).

An expression means a topic when it matches the whole name.

What the last few expressions mean is remembered with the names that they were tried on, so a topic that comes later is
tried alone, and a request can try all names before it takes its group's lock (`prepare`).

Thread rule: any thread; compiled expressions are kept by `lru_cache`, which has its own lock. What is remembered is
replaced as a whole, under the GIL.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base import regex
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM_BYTES_MAX: Final = 1 << 20
"""What one compiled expression may take; an eighth of RE2's own limit."""
COMPILED_MAX: Final = 256
"""Compiled expressions kept."""
REMEMBERED_MAX: Final = 8
"""Expressions whose topics are remembered: those that requests are about to use."""


class _Meaning(NamedTuple):
    """The names that an expression was tried on, and those that it means."""

    tried: frozenset[str]
    meant: frozenset[str]


_meanings: OrderedDict[str, _Meaning] = OrderedDict()


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that an expression means; raise InvalidRegularExpression if it is none."""
    fullmatch = _compiled(expression).fullmatch
    known = _meanings.get(expression)
    if known is None:
        return frozenset(name for name in names if fullmatch(name))
    tried, meant = known
    return frozenset(name for name in names if (name in meant if name in tried else fullmatch(name)))


def prepare(expression: str, names: Iterable[str]) -> None:
    """Try an expression on names that `matching` will be asked about; in a long request, in portions.

    Raise InvalidRegularExpression if it is none. Hold no lock.
    """
    fullmatch = _compiled(expression).fullmatch
    present = frozenset(names)
    tried, meant = _meanings.get(expression) or _Meaning(frozenset(), frozenset())
    found = {name for name in checkpointed(present - tried) if fullmatch(name)}
    found |= meant & present
    _meanings.pop(expression, None)
    _meanings[expression] = _Meaning(present, present if len(found) == len(present) else frozenset(found))
    while len(_meanings) > REMEMBERED_MAX:
        _meanings.popitem(last=False)


def check(expression: str) -> None:
    """InvalidRegularExpression says what is wrong with an expression."""
    _compiled(expression)


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(expression: str) -> Any:
    try:
        return regex.compiled(expression, PROGRAM_BYTES_MAX)
    except ValueError as error:
        raise InvalidRegularExpression(f"{expression!r} is not a valid RE2 regular expression: {error}") from None
