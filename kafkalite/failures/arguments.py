"""Refuse unknown arguments with an error that names where they belong.

    RetryTopics(["1 s"], order="key")   TypeError: RetryTopics has no order; it belongs to Policy and @failures.handler

Thread rule: functions are pure.
"""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


RUN_ARGUMENTS: Final = (
    "stop", "member", "workers", "loop", "dead", "security", "client", "consumer",
    "on_alarm", "on_failed", "on_moved", "create_topics", "on_start",
)  # fmt: skip
"""Those of `failures.run`, but for the options of a GroupReader."""


class NamedArguments:
    """A data class that is made with its fields. TypeError for another name."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        known: list[str] = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # its classes are data classes
        refuse_unknown(cls.__name__, named, known)
        return super().__new__(cls)


def refuse_unknown(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """TypeError for the first name that is not known, with its place, or the nearest known name."""
    for name in given:
        if name not in known:
            raise TypeError(f"{where} has no {name}; {belongs(name, known)}")


def belongs(name: str, known: Collection[str]) -> str:
    """Where an argument belongs, or what was meant."""
    found = places().get(name)
    if found:
        return f"it belongs to {' and '.join(found)}"
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"expected {', '.join(sorted(known))}"


def places() -> dict[str, list[str]]:
    """Each argument's places."""
    found: dict[str, list[str]] = {"retry": ["@failures.handler"]}
    for kind in NamedArguments.__subclasses__():
        owners = ["Policy", "@failures.handler"] if kind.__name__ == "Policy" else [kind.__name__]
        for field in fields(kind):  # type: ignore[arg-type]  # they are data classes
            found.setdefault(field.name, []).extend(owners)
    for name in RUN_ARGUMENTS:
        found.setdefault(name, []).append("run")
    return found
