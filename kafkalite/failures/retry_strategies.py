"""What a group does with a record that fails: four strategies, and how one follows another.

    failure number n ─▶ Strategy.step(n) ─▶ HERE (wait, try again in place) · TOPIC (to the retry topic of a delay)
                                            DEAD (to the dead letters) · IGNORE (count, go on) · STOP (end the member)

Failures are counted from 1, over all attempts of a record; those in place begin anew after a restart, those that went
through a retry topic do not, as the number travels with the record.

Thread rule: immutable values.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.failures.arguments import NamedArguments
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
        if not 1.0 <= self.factor <= 100.0:
            raise ValueError(f"the factor of a backoff must be 1 to 100, not {self.factor}")
        if milliseconds(self.first) > milliseconds(self.ceiling):
            raise ValueError(f"the first backoff ({self.first!r}) is above the ceiling ({self.ceiling!r})")


def backoff_ms(backoff: Duration | Exponential | Sequence[Duration], number: int) -> int:
    """How long to wait after failure `number` (from 1), in ms. Of a list the last element goes on for ever."""
    if isinstance(backoff, Exponential):
        ceiling = milliseconds(backoff.ceiling)
        grown = milliseconds(backoff.first) * backoff.factor ** min(number - 1, 200)
        return round(min(grown, ceiling))
    if isinstance(backoff, (str, int, float)):
        return milliseconds(backoff)
    return milliseconds(backoff[min(number, len(backoff)) - 1])


def check_backoff(backoff: Duration | Exponential | Sequence[Duration]) -> None:
    """ValueError for one that is none."""
    if not isinstance(backoff, (str, int, float, Exponential)) and not list(backoff):
        raise ValueError("a backoff must be a duration, a list of durations, or Exponential(first, ceiling)")
    backoff_ms(backoff, 1)


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
        check_window(self.ratio, self.over, self.least)
        if self.then not in {None, "stop", "dead letter"}:
            raise ValueError(f"then must be None, 'stop' or 'dead letter' for a loss alarm, not {self.then!r}")


@dataclass(frozen=True)
class Limit(NamedArguments):
    """When failures mean that a system is down: above `ratio` over the last `over` once `least` were seen, or
    `consecutive` ones."""

    ratio: float
    over: Duration = "1 min"
    least: int = 20
    consecutive: int | None = None

    def __post_init__(self) -> None:
        check_window(self.ratio, self.over, self.least)
        if self.consecutive is not None and self.consecutive < 1:
            raise ValueError(f"consecutive must be at least 1, not {self.consecutive}")


def check_window(ratio: float, over: Duration, least: int) -> None:
    """ValueError for a window of outcomes that can never say anything."""
    if not 0.0 <= ratio <= 1.0 or least < 1 or milliseconds(over) < IN_PLACE_MS_MAX:
        raise ValueError(
            f"ratio ({ratio}) must be 0 to 1, over ({over!r}) at least 1 s, and least ({least}) at least 1"
        )


@dataclass(frozen=True)
class Ignore(NamedArguments):
    """Counts the record and goes on. Nothing is kept of it, but a row of the ledger with `record`."""

    alarm: Loss | None = None
    record: bool = False

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
        check_backoff(self.backoff)
        milliseconds(self.alarm_after)

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
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(f"attempts must be 1 to {ATTEMPTS_MAX}, not {self.attempts}")
        check_backoff(self.backoff)
        if isinstance(self.then, str) and self.then not in ENDS:
            raise ValueError(f"then must be {', '.join(map(repr, ENDS))} or a strategy, not {self.then!r}")

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
        if not 0 < len(self.delays_after) <= ATTEMPTS_MAX or isinstance(self.delays_after, str):
            raise ValueError(f"RetryTopics needs a list of 1 to {ATTEMPTS_MAX} delays, not {self.delays_after!r}")
        for delay in self.delays_after:
            milliseconds(delay)
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter must be 0 to 1, not {self.jitter}")

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
