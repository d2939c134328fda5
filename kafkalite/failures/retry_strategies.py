"""Define the four strategies for a record that fails: RetryTopics, RetryHere, RetryForever and Ignore.

`Strategy.step(n)` returns the step after failure number n of a record (the first is 1):

    HERE      wait, then try again in place
    TOPIC     write the record to the retry topic of a delay
    DEAD      write a dead letter
    IGNORE    count the failure, and continue with the next record
    STOP      end the member

In a retry topic, a header of the record contains the number of its failures; with order by key, the ledger row does.
Failures in place are not stored. After a restart, the count continues from there, or from 0 in a source topic.

Thread rule: the values are immutable.
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
"""A shorter delay is waited for in place, since a retry topic would take longer."""
JITTER: Final = 0.2
ATTEMPTS_MAX: Final = 1000
ENDS: Final = ("dead letter", "stop", "ignore")


class StepKind(Enum):
    """The action after a failure of a record."""

    HERE = "here"
    TOPIC = "topic"
    DEAD = "dead letter"
    IGNORE = "ignore"
    STOP = "stop"


class Step(NamedTuple):
    """The step after a failure: its kind and the delay in ms.

    `jitter` is the maximum share of the delay to add at random.
    """

    kind: StepKind
    delay_ms: int = 0
    jitter: float = 0.0


@dataclass(frozen=True)
class Exponential(NamedArguments):
    """A backoff that grows from `first` by `factor` after each failure, up to `ceiling`."""

    first: Duration
    ceiling: Duration = "1 min"
    factor: float = 2.0

    def __post_init__(self) -> None:
        self._require_number("factor", 1, 100)
        holds = self._require_duration("first") <= self._require_duration("ceiling")
        self._require("first", holds, f"at most the ceiling, {self.ceiling!r}")


def backoff_ms(backoff: Duration | Exponential | Sequence[Duration], number: int) -> int:
    """Return the delay after failure `number` (from 1), in ms.

    If `backoff` is a list, its last element applies to all later failures.
    """
    if isinstance(backoff, Exponential):
        ceiling = milliseconds(backoff.ceiling)
        grown = milliseconds(backoff.first) * backoff.factor ** min(number - 1, 200)
        return round(min(grown, ceiling))
    if isinstance(backoff, (str, int, float)):
        return milliseconds(backoff)
    return milliseconds(backoff[min(number, len(backoff)) - 1])


def check_backoff(place: str, backoff: Any) -> None:
    """Raise ValueError if this is not a duration, a list of durations or an Exponential."""
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
    """Raise ValueError if this is not a list of 1 to ATTEMPTS_MAX durations."""
    if not is_list(delays) or not 0 < len(delays) <= ATTEMPTS_MAX:
        raise ValueError(f"{place} must be a list of 1 to {ATTEMPTS_MAX} delays, such as ['1 s'], not {delays!r}")
    for delay in delays:
        duration_ms(place, delay)


@dataclass(frozen=True)
class Loss(NamedArguments):
    """The condition for an alarm about ignored records: their ratio over the last `over` exceeds `ratio`.

    `ratio`   ignored records divided by ignored and processed records, from 0 to 1
    `over`    length of the sliding window, at least 1 s
    `least`   minimum number of records in the window
    `then`    what to do with failing records after the alarm: None (nothing more), "stop" or "dead letter"
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
    """The condition for opening the circuit breaker.

    The ratio of failed records over the last `over` exceeds `ratio`, or `consecutive` records have failed in a row. A
    record that is retried in place counts once.

    `ratio`         failed records divided by all records, from 0 to 1
    `over`          length of the sliding window, at least 1 s
    `least`         minimum number of records in the window for `ratio`
    `consecutive`   number of failed records in a row; None: no such limit
    """

    ratio: float
    over: Duration = "1 min"
    least: int = 20
    consecutive: int | None = None

    def __post_init__(self) -> None:
        check_window(self)
        if self.consecutive is not None:
            self._require_whole("consecutive", 1)


def check_window(window: Loss | Limit) -> None:
    """Raise ValueError for a window whose ratio, length or least count is out of range."""
    window._require_number("ratio", 0, 1)  # noqa: SLF001  # of this module
    window._require_whole("least", 1)  # noqa: SLF001
    window._require("over", window._require_duration("over") >= IN_PLACE_MS_MAX, "at least 1 s")  # noqa: SLF001


@dataclass(frozen=True)
class Ignore(NamedArguments):
    """Count the failed record and continue with the next record.

    `alarm`    when to raise an alarm about ignored records
    `record`   whether to write a ledger row for each ignored record; otherwise the record is only counted
    """

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
    """Retry in place until the handler succeeds. The partition waits meanwhile.

    `backoff`       a duration, a list of durations, or an Exponential
    `alarm_after`   raise an alarm when a record has been retried for this long
    """

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
    """Call the handler up to `attempts` times for a record, in place, then do what `then` says. The partition waits.

    `backoff`   a duration, a list of durations, or an Exponential
    `then`      "dead letter", "stop" (end the member), "ignore", or another strategy
    """

    attempts: int
    backoff: Duration | Exponential | Sequence[Duration] = "1 s"
    then: str | Strategy = "dead letter"

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
    """Retry once after each delay in `delays_after`, then write a dead letter.

    The record waits in a retry topic, one per delay, so it does not block its partition.

    `jitter`         maximum share of a delay that is added at random; from 0 to 1
    `dead_letters`   False: the record is ignored in the end, instead of becoming a dead letter

    Delays below 1 s are waited for in place.
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
        """Yield the delays in ms that have a retry topic, each once, in the order of their first use."""
        every = dict.fromkeys(milliseconds(delay) for delay in self.delays_after)
        return (delay for delay in every if delay >= IN_PLACE_MS_MAX)


def last_strategy(strategy: Strategy) -> Strategy:
    """Return the strategy that applies after the last attempt of all nested RetryHere strategies, or this one."""
    while isinstance(strategy, RetryHere) and not isinstance(strategy.then, str):
        strategy = strategy.then
    return strategy


Strategy = Ignore | RetryForever | RetryHere | RetryTopics
STRATEGIES: Final = (Ignore, RetryForever, RetryHere, RetryTopics)
