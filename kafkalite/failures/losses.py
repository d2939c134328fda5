"""Raise an alarm if the strategy `Ignore`, which drops failed records, drops too many of them.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.failures.events import Alarm
from kafkalite.failures.retry_strategies import Ignore
from kafkalite.failures.times import milliseconds
from kafkalite.failures.windows import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.failures.events import Failure
    from kafkalite.failures.retry_strategies import Strategy


class Losses:
    """The ratio of dropped records for each `Ignore` strategy that has an alarm. The key is the strategy's index in the
    policy.
    """

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        self._strategies = strategies
        self._windows: dict[int, Window] = {}
        self._exceeded: set[int] = set()
        for place, strategy in enumerate(strategies):
            if isinstance(strategy, Ignore) and strategy.alarm is not None:
                alarm = strategy.alarm
                self._windows[place] = Window(alarm.ratio, milliseconds(alarm.over), alarm.least)

    @property
    def counts(self) -> bool:
        """Whether any strategy has an alarm for lost records."""
        return bool(self._windows)

    def succeeded(self, now_ms: float) -> list[Alarm]:
        """Count a record that was not dropped.

        Return the end of the alarm for each strategy whose ratio is below its limit again, unless the alarm has an
        action.
        """
        if not self._windows:
            return []
        for window in self._windows.values():
            window.note(now_ms, failed=False)
        found = []
        for place in [place for place in self._exceeded if not self._windows[place].exceeded]:
            strategy = self._strategies[place]
            if isinstance(strategy, Ignore) and strategy.alarm is not None and strategy.alarm.then is None:
                self._exceeded.discard(place)
                found.append(Alarm("loss-over", "the ratio of lost records is below its limit again", {}))
        return found

    def lost(self, place: int, failure: Failure, now_ms: float) -> tuple[list[Alarm], str | None]:
        """Count a record that the strategy at index `place` has dropped.

        Return an alarm if this record exceeds the limit. Also return the action while the limit is exceeded: "stop",
        "dead letter" or None.
        """
        strategy, window = self._strategies[place], self._windows.get(place)
        if not isinstance(strategy, Ignore) or strategy.alarm is None or window is None:
            return [], None
        window.note(now_ms, failed=True)
        alarms = []
        if window.exceeded and place not in self._exceeded:
            self._exceeded.add(place)
            share = f"{window.ratio:.3%} of the records were lost in the last {strategy.alarm.over}"
            alarms.append(Alarm("loss", share, {"ratio": window.ratio, "exception": failure.name}))
        return alarms, strategy.alarm.then if place in self._exceeded else None
