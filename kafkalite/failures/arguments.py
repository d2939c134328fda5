"""Reject unknown arguments and wrong values with an error that names the argument.

    RetryTopics(["1 s"], order="key")   TypeError: RetryTopics has no order; it belongs to Policy and @failures.handler
    RetryTopics(["1 s"], jitter="2")    ValueError: jitter of RetryTopics must be a number from 0 to 1, not '2'

Thread rule: functions are pure.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.failures.times import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

RUN_ARGUMENTS: Final = (
    "stop", "member", "workers", "loop", "dead", "security", "client", "consumer",
    "on_alarm", "on_failed", "on_moved", "create_topics", "on_start",
)  # fmt: skip
"""Arguments of `failures.run`, without the options of a GroupReader."""


class NamedArguments:
    """Base of data classes that reject unknown field names with TypeError."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        known: list[str] = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # its classes are data classes
        refuse_unknown(cls.__name__, named, known)
        return super().__new__(cls)

    def _place(self, name: str) -> str:
        """Return a field's name for error messages, with its class.

        Fields of Policy are named without the class, because the decorator has the same fields.
        """
        return name if type(self).__name__ == "Policy" else f"{name} of {type(self).__name__}"

    def _require(self, name: str, holds: bool, wanted: str) -> None:  # a condition
        """Raise ValueError for a field if the condition `holds` is false."""
        if not holds:
            raise ValueError(f"{self._place(name)} must be {wanted}, not {getattr(self, name)!r}")

    def _require_flag(self, *names: str) -> None:
        for name in names:
            self._require(name, isinstance(getattr(self, name), bool), "True or False")

    def _require_number(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        holds = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        self._require(name, holds, f"a number from {least:g} to {most:g}")

    def _require_whole(self, name: str, least: int, most: int | None = None) -> None:
        value = getattr(self, name)
        holds = isinstance(value, int) and not isinstance(value, bool) and least <= value <= (most or math.inf)
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        self._require(name, holds, f"a whole number {limits}")

    def _require_duration(self, name: str) -> int:
        """Return a field's duration in ms. Raises ValueError."""
        return duration_ms(self._place(name), getattr(self, name))


def duration_ms(place: str, value: Any) -> int:
    """Convert a duration to ms. Raises ValueError, whose message names `place`."""
    try:
        return milliseconds(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def is_name(value: object) -> bool:
    """Return whether a value is non-empty text."""
    return isinstance(value, str) and value != ""


def is_list(value: object) -> bool:
    """Return whether a value is a list or another collection, but neither text nor a mapping."""
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))


def refuse_unknown(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first unknown argument.

    The message names a class that has the argument, or else the closest known argument.
    """
    for name in given:
        if name not in known:
            raise TypeError(f"{where} has no {name}; {belongs(name, known)}")


def belongs(name: str, known: Collection[str]) -> str:
    """Return the end of an error message: the class that has the argument, or else the closest known argument."""
    found = places().get(name)
    if found:
        return f"it belongs to {' and '.join(found)}"
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"expected {', '.join(sorted(known))}"


def places() -> dict[str, list[str]]:
    """Return, for each argument name, the classes and functions that have it."""
    found: dict[str, list[str]] = {"retry": ["@failures.handler"]}
    for kind in NamedArguments.__subclasses__():
        owners = ["Policy", "@failures.handler"] if kind.__name__ == "Policy" else [kind.__name__]
        for field in fields(kind):  # type: ignore[arg-type]  # they are data classes
            found.setdefault(field.name, []).extend(owners)
    for name in RUN_ARGUMENTS:
        found.setdefault(name, []).append("run")
    return found
