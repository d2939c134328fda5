"""What a group does with a record that fails: four strategies, and how one follows another.

    failure number n ─▶ Strategy.step(n) ─▶ HERE (wait, try again in place) · TOPIC (to the retry topic of a delay)
                                            DEAD (to the dead letters) · IGNORE (count, go on) · STOP (end the member)

Failures are counted from 1, over all attempts of a record; those in place begin anew after a restart, those that went
through a retry topic do not, as the number travels with the record.

Thread rule: immutable values.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.failures.arguments import NamedArguments, duration_ms, is_list
from kafkalite.failures.times import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalite.failures.times import Duration

IN_PLACE_MS_MAX: Final = 1000
"""A delay shorter than this is waited for in place: a topic would take longer."""
JITTER: Final = 0.2
ATTEMPTS_MAX: Final = 1000
ENDS: Final = ("dead letter", "stop", "ignore")


class StepKind(Enum):
    """What happens to a record after a failure."""

    HERE = "here"
    TOPIC = "topic"
    DEAD = "dead letter"
    IGNORE = "ignore"
    STOP = "stop"


class Step(NamedTuple):
    """One step: its kind, how long to wait (ms), and the share of that which chance may add, never take away."""

    kind: StepKind
    delay_ms: int = 0
    jitter: float = 0.0


@dataclass(frozen=True)
class Exponential(NamedArguments):
    """A backoff that grows: `first`, times `factor` each time, at most `ceiling`."""

    first: Duration
    ceiling: Duration = "1 min"
    factor: float = 2.0

    def __post_init__(self) -> None:
        self._require_number("factor", 1, 100)
        holds = self._require_duration("first") <= self._require_duration("ceiling")
        self._require("first", holds, f"at most the ceiling, {self.ceiling!r}")


def backoff_ms(backoff: Duration | Exponential | Sequence[Duration], number: int) -> int:
    """How long to wait after failure `number` (from 1), in ms. Of a list the last element goes on for ever."""
    if isinstance(backoff, Exponential):
        ceiling = milliseconds(backoff.ceiling)
        grown = milliseconds(backoff.first) * backoff.factor ** min(number - 1, 200)
        return round(min(grown, ceiling))
    if isinstance(backoff, (str, int, float)):
        return milliseconds(backoff)
    return milliseconds(backoff[min(number, len(backoff)) - 1])


def check_backoff(place: str, backoff: Any) -> None:
    """ValueError for one that is none."""
    if isinstance(backoff, Exponential):
        return
    every = backoff if is_list(backoff) else [backoff]
    if not every or not all(isinstance(one, (str, int, float)) for one in every):
        raise ValueError(
            f"{place} must be a duration, a list of durations, or Exponential(first, ceiling), not {backoff!r}"
        )
    for one in every:
        duration_ms(place, one)


def check_delays(place: str, delays: Any) -> None:
    """ValueError for delays that a record cannot have."""
    if not is_list(delays) or not 0 < len(delays) <= ATTEMPTS_MAX:
        raise ValueError(f"{place} must be a list of 1 to {ATTEMPTS_MAX} delays, such as ['1 s'], not {delays!r}")
    for delay in delays:
        duration_ms(place, delay)


@dataclass(frozen=True)
class Loss(NamedArguments):
    """When ignored records become an alarm: above `ratio` of all over the last `over`, once `least` were seen.

    `then`: None (the alarm alone), "stop", or "dead letter": what happens to failing records from then on.
    """

    ratio: float
    over: Duration = "1 min"
    least: int = 20
    then: str | None = None

    def __post_init__(self) -> None:
        check_window(self)
        self._require("then", self.then in (None, "stop", "dead letter"), "None, 'stop' or 'dead letter'")


@dataclass(frozen=True)
class Limit(NamedArguments):
    """When failures mean that a system is down: above `ratio` over the last `over` once `least` were seen, or
    `consecutive` ones."""

    ratio: float
    over: Duration = "1 min"
    least: int = 20
    consecutive: int | None = None

    def __post_init__(self) -> None:
        check_window(self)
        if self.consecutive is not None:
            self._require_whole("consecutive", 1)


def check_window(window: Loss | Limit) -> None:
    """ValueError for a window of outcomes that can never say anything."""
    window._require_number("ratio", 0, 1)  # noqa: SLF001  # of this module
    window._require_whole("least", 1)  # noqa: SLF001
    window._require("over", window._require_duration("over") >= IN_PLACE_MS_MAX, "at least 1 s")  # noqa: SLF001


@dataclass(frozen=True)
class Ignore(NamedArguments):
    """Counts the record and goes on. Nothing is kept of it, but a row of the ledger with `record`."""

    alarm: Loss | None = None
    record: bool = False

    def __post_init__(self) -> None:
        self._require("alarm", self.alarm is None or isinstance(self.alarm, Loss), "a Loss")
        self._require_flag("record")

    def step(self, _number: int) -> Step:
        return Step(StepKind.IGNORE)

    def delays(self) -> Iterator[int]:
        return iter(())


@dataclass(frozen=True)
class RetryForever(NamedArguments):
    """Tries until it works; the partition waits meanwhile. `alarm_after`: a record older than that is an alarm."""

    backoff: Duration | Exponential | Sequence[Duration] = Exponential("100 ms", "30 s")
    alarm_after: Duration = "5 min"

    def __post_init__(self) -> None:
        check_backoff(self._place("backoff"), self.backoff)
        self._require_duration("alarm_after")

    def step(self, number: int) -> Step:
        return Step(StepKind.HERE, backoff_ms(self.backoff, number))

    def delays(self) -> Iterator[int]:
        return iter(())


@dataclass(frozen=True)
class RetryHere(NamedArguments):
    """Tries `attempts` times in all, the partition waiting, then does what `then` says: an end, or a strategy."""

    attempts: int
    backoff: Duration | Exponential | Sequence[Duration] = "1 s"
    then: str | RetryTopics | RetryForever | Ignore = "dead letter"

    def __post_init__(self) -> None:
        self._require_whole("attempts", 1, ATTEMPTS_MAX)
        check_backoff(self._place("backoff"), self.backoff)
        holds = self.then in ENDS if isinstance(self.then, str) else isinstance(self.then, STRATEGIES)
        self._require("then", holds, f"{', '.join(map(repr, ENDS))} or a strategy")

    def step(self, number: int) -> Step:
        if number < self.attempts:
            return Step(StepKind.HERE, backoff_ms(self.backoff, number))
        if isinstance(self.then, str):
            return Step(StepKind(self.then))
        return self.then.step(number - self.attempts + 1)

    def delays(self) -> Iterator[int]:
        return iter(()) if isinstance(self.then, str) else self.then.delays()


@dataclass(frozen=True)
class RetryTopics(NamedArguments):
    """Once more after each of `delays`, in topics of their own, so that others are not held up; then a dead letter.

    `jitter` is the share of a delay that chance may add. With `dead_letters=False` the record is ignored at last.
    """

    delays_after: Sequence[Duration]
    jitter: float = JITTER
    dead_letters: bool = True

    def __post_init__(self) -> None:
        check_delays(self._place("delays_after"), self.delays_after)
        self._require_number("jitter", 0, 1)
        self._require_flag("dead_letters")

    def step(self, number: int) -> Step:
        if number > len(self.delays_after):
            return Step(StepKind.DEAD if self.dead_letters else StepKind.IGNORE)
        delay_ms = milliseconds(self.delays_after[number - 1])
        return Step(StepKind.HERE if delay_ms < IN_PLACE_MS_MAX else StepKind.TOPIC, delay_ms, self.jitter)

    def delays(self) -> Iterator[int]:
        """Those that have a topic, each once, in the order in which they come first."""
        every = dict.fromkeys(milliseconds(delay) for delay in self.delays_after)
        return (delay for delay in every if delay >= IN_PLACE_MS_MAX)


Strategy = Ignore | RetryForever | RetryHere | RetryTopics
STRATEGIES: Final = (Ignore, RetryForever, RetryHere, RetryTopics)
