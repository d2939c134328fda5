"""The longest pauses of clients: the longest time between two responses of one kind, in a period.

A pause belongs to the period in which it ends, or that ends within it. Times are seconds of the monotonic clock at
which a client's event arrived here. Not thread-safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cluster import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = dict[str, Any]


class Pauses:
    """Of each partition of `plain`, of transactions, and of the commits of each group."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def take(self, event: Event, at: float) -> None:
        """The next event of some client."""
        for what in _answered(event):
            self._note(what, at)
            self._last[what] = at

    def begin(self) -> None:
        """A new stretch begins; a pause that began before is its own, if it ends in it."""
        self._longest.clear()

    def end(self, at: float) -> dict[str, float]:
        """The longest pause of each in this stretch, in seconds."""
        for what in self._last:
            self._note(what, at)
        return {what: round(self._longest[what], 2) for what in sorted(self._longest)}

    def _note(self, what: str, at: float) -> None:
        if what in self._last:
            self._longest[what] = max(self._longest.get(what, 0.0), at - self._last[what])


def _answered(event: Event) -> Iterator[str]:
    """Yield the activities that this event shows to be running."""
    if event["event"] == "acknowledged":
        for place, *_ in event["records"]:
            topic, number = plan.topic_of(place)
            yield f"{topic}-{number}"
    elif event["event"] == "ended" and event["outcome"] == "committed":
        yield "transactions"
    elif event["event"] == "committed":
        yield f"commits of {plan.kind_of(event['group'])}"
