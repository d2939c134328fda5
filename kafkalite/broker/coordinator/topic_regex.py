"""Match topic names against regular-expression subscriptions in RE2's syntax (KIP-848).

An expression must match the whole name. Kafka's broker uses RE2/J, so Java consumers send the same syntax. Clients
choose the expressions, so matching must not take exponential time. RE2 guarantees that.

Thread rule: any thread. `lru_cache` has its own lock. An entry of `_meanings` is immutable.
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
"""Memory limit of one compiled expression in bytes; an eighth of RE2's own limit."""
COMPILED_MAX: Final = 256
"""Number of compiled expressions kept."""
REMEMBERED_MAX: Final = 8
"""Number of expressions whose matches are cached, for requests that are about to use them."""


class _Meaning(NamedTuple):
    """The cached results for one expression: the topic names that were tried, and those that it matched."""

    tried: frozenset[str]
    meant: frozenset[str]


_meanings: OrderedDict[str, _Meaning] = OrderedDict()


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names in `names` that an expression matches. InvalidRegularExpression if it is malformed."""
    fullmatch = _compiled(expression).fullmatch
    known = _meanings.get(expression)
    if known is None:
        return frozenset(name for name in names if fullmatch(name))
    tried, meant = known
    return frozenset(name for name in names if (name in meant if name in tried else fullmatch(name)))


def prepare(expression: str, names: Iterable[str]) -> None:
    """Fill the cache for the names with which `matching` will be called. In a long request this runs in portions.

    The cache has the results of the last few expressions. A later call tries only new names.

    A request calls it before it takes its group's lock; the caller must hold no lock. InvalidRegularExpression if the
    expression is malformed.
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
    """Raise InvalidRegularExpression, with the reason, if an expression is malformed."""
    _compiled(expression)


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(expression: str) -> Any:
    try:
        return regex.compiled(expression, PROGRAM_BYTES_MAX)
    except ValueError as error:
        raise InvalidRegularExpression(f"{expression!r} is not a valid RE2 regular expression: {error}") from None
