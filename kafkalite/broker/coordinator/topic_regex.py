"""Subscriptions by regular expression, in RE2's syntax (KIP-848): which topics an expression means.

An expression comes from a client and is tried on every topic's name, so it must not be able to hang the broker. Java's
consumers check their expressions by the same syntax (RE2/J is what Kafka's broker uses).

An expression means a topic when it matches the whole name.

Thread rule: any thread; compiled expressions are kept by `lru_cache`, which has its own lock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base import regex
from kafkalite.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM_BYTES_MAX: Final = 1 << 20
"""What one compiled expression may take; an eighth of RE2's own limit."""
COMPILED_MAX: Final = 256
"""Compiled expressions kept."""


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that an expression means; InvalidRegularExpression if it is none."""
    fullmatch = _compiled(expression).fullmatch
    return frozenset(name for name in names if fullmatch(name))


def check(expression: str) -> None:
    """InvalidRegularExpression says what is wrong with an expression."""
    _compiled(expression)


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(expression: str) -> Any:
    try:
        return regex.compiled(expression, PROGRAM_BYTES_MAX)
    except ValueError as error:
        raise InvalidRegularExpression(f"{expression!r} is no regular expression of RE2's: {error}") from None
