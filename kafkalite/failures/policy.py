"""The policy of a group: which topics, what happens to what fails, in which order, and when to call somebody.

A policy is checked when it is made: ValueError, one sentence a fault. It is data, so it can be written as TOML
(`kafkalite.failures.policy_file`) and is published in the group's ledger.

Thread rule: immutable values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.failures.arguments import NamedArguments, is_list, is_name
from kafkalite.failures.names import Layout, ledger_name
from kafkalite.failures.retry_strategies import STRATEGIES, Ignore, Limit, RetryForever, RetryHere, RetryTopics
from kafkalite.failures.times import UNITS_MS, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures.retry_strategies import Step, Strategy
    from kafkalite.failures.times import Duration

ORDERS: Final = ("none", "key")
REPROCESS: Final = ("skip", "retry", "letters")
ON_DEAD: Final = ("skip", "process", "wait")
ON_DAMAGE: Final = ("stop", "skip")
AFTER_DEAD: Final = ("continue", "hold")
AT_LEAST_ONCE: Final = "at least once"
MOVES: Final = ("exactly once", AT_LEAST_ONCE)
FAMILIES: Final = ("spring", "connect")
LETTER_KEYS: Final = ("original", "date")
CLEANUPS: Final = ("delete", "compact")
AHEAD_MAX: Final = 500
PARKED_MAX: Final = 100_000
BATCH_MAX: Final = 500
"""Records of a batch, which fit into one transaction (kafkalite.failures.moves)."""
RETENTION_MS_MIN: Final = 7 * UNITS_MS["d"]
RETENTION_TIMES: Final = 10


@dataclass(frozen=True)
class Policy(NamedArguments):
    """See the module.

    `strategy`          for what fails; `rules` has others by exception class, the first that fits
    `fatal`             classes that are dead letters at once; `outage`: classes that say that a system is down
    `order`             "none", or "key": a key waits behind its failed predecessor, others go on
    `after_dead`        with order by key, what a key does whose record has become a dead letter: "continue" with the
                        next, or "hold" until the letter is redriven and processed, or resolved
    `processing_time_max`   a handler that takes longer is cancelled (async) or reported
    `limit`             when failures mean an outage: nothing is moved, one record is tried now and then
    `after`             groups that must have decided on a record first; `on_dead`: what if they gave it up
    `on_damage`         a batch that cannot be read ends the member, or with "skip" each of its records becomes a dead
                        letter without value, unreadable; with the client of this project
    `reprocess`         for records with a row that gives them up: stepped over, tried again, or nothing but those
    `moves`             "exactly once" (transactions) or "at least once"
    `decode`            bytes of a value to what the handler gets; its errors are fatal
    `compat`            families of headers to write besides ours: "spring", "connect"
    `scrub`             is given each error text before it is written anywhere
    `letter_key`        of dead letters: "original", or "date", the UTC day of the last failure
    `dead_topics`       topics for the dead letters of some exception classes, the first that fits, instead of
                        dlq.GROUP.TOPIC: no other group's
    `cleanup`           of dead letters: "delete" keeps them until they are resolved; with "compact" each has a key of
                        its own, day and record, and is resolved by a tombstone: the broker gives the space back
    `skip_tombstones`   records without value are not handled
    `batch`             0: the handler gets a record a call; otherwise a list of at most so many records of a partition
    """

    group: str
    topics: Sequence[str]
    strategy: Strategy
    fatal: Sequence[type[BaseException]] = ()
    outage: Sequence[type[BaseException]] = ()
    rules: Mapping[type[BaseException], Strategy] = field(default_factory=dict)
    order: str = "none"
    after_dead: str = "continue"
    processing_time_max: Duration = "2 min"
    limit: Limit | None = None
    after: Sequence[str] = ()
    on_dead: str = "skip"
    on_damage: str = "stop"
    reprocess: str = "skip"
    moves: str = "exactly once"
    decode: Callable[[bytes], Any] | None = None
    compat: Sequence[str] = ("spring",)
    scrub: Callable[[str], str] | None = None
    letter_key: str = "original"
    dead_topics: Mapping[type[BaseException], str] = field(default_factory=dict)
    cleanup: str = "delete"
    skip_tombstones: bool = False
    batch: int = 0
    ahead_max: int = AHEAD_MAX
    parked_max: int = PARKED_MAX

    def __post_init__(self) -> None:
        self._require("topics", is_list(self.topics) and len(self.topics) > 0, "a list with at least one topic")
        self._require("group", is_name(self.group), "the name of a group")
        self._check_kinds()
        for name, value, known in (
            ("order", self.order, ORDERS),
            ("after_dead", self.after_dead, AFTER_DEAD),
            ("reprocess", self.reprocess, REPROCESS),
            ("on_dead", self.on_dead, ON_DEAD),
            ("on_damage", self.on_damage, ON_DAMAGE),
            ("moves", self.moves, MOVES),
            ("letter_key", self.letter_key, LETTER_KEYS),
            ("cleanup", self.cleanup, CLEANUPS),
        ):
            self._require(name, value in known, f"one of {', '.join(map(repr, known))}")
        if self.letter_key == "date" and self.cleanup == "compact":
            raise ValueError('cleanup="compact" sets the keys of dead letters itself; leave out letter_key="date"')
        if set(self.compat) - set(FAMILIES):
            raise ValueError(f"compat may contain {', '.join(FAMILIES)}, not {list(self.compat)}")
        self._require("ahead_max", self.ahead_max <= self.parked_max, f"at most parked_max ({self.parked_max})")
        self._require("batch", self.batch <= self.ahead_max, f"at most ahead_max ({self.ahead_max})")
        self._require("processing_time_max", self._require_duration("processing_time_max") > 0, "above 0")
        if self.group in self.after or (self.order == "key" and not self.uses_topics):
            raise ValueError(
                f"after contains the policy's own group {self.group}"
                if self.group in self.after
                else 'order="key" needs RetryTopics as its strategy'
            )
        if self.order == "key" and self.moves != "exactly once":
            raise ValueError(f'order="key" needs moves="exactly once", not {self.moves!r}')
        if self.dead_topics and not self.writes_letters:
            raise ValueError("dead_topics would get no dead letters: the strategy and `fatal` make none")
        if self.after_dead == "hold" and self.order != "key":
            raise ValueError('after_dead="hold" needs order="key"')
        own = {name for name, lane in self.layout.lanes.items() if lane.is_retry}
        own |= {self.layout.ledger, *self.layout.dead_lanes}
        ledgers = ledger_name("")
        if own & set(self.topics) or any(topic.startswith(ledgers) for topic in self.topics):
            raise ValueError("topics must not contain a ledger or the policy's own retry and dead-letter topics")

    def _check_kinds(self) -> None:
        """What would otherwise be found out when the first record fails."""
        for name in ("ahead_max", "parked_max"):
            self._require_whole(name, 1)
        self._require_whole("batch", 0, BATCH_MAX)
        self._require_flag("skip_tombstones")
        for name in ("topics", "after", "compat"):
            value = getattr(self, name)
            if not is_list(value) or not all(is_name(one) for one in value):
                raise ValueError(f"{name} is {value!r}; it is a list of names")
        for name in ("fatal", "outage"):
            if not is_list(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is a list of exception classes")
        if not isinstance(self.rules, Mapping):
            raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                f"rules is {self.rules!r}; it is a dict of exception classes and strategies"
            )
        routes: Any = self.dead_topics
        if not isinstance(routes, Mapping) or not all(isinstance(one, str) for one in routes.values()):
            raise ValueError(
                f"dead_topics is {routes!r}; it has topics by exception class, such as "
                '{LookupError: "orders.unknown"}'
            )
        for name in ("fatal", "outage", "rules", "dead_topics"):
            for kind in getattr(self, name):
                if not isinstance(kind, type) or not issubclass(kind, BaseException):
                    raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                        f"{name} has {kind!r}, which is not an exception class"
                    )
        for name, value in (("strategy", self.strategy), *(("rules", strategy) for strategy in self.rules.values())):
            if not isinstance(value, STRATEGIES):
                raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                    f"{name} has {value!r}, which is not a strategy: use RetryTopics(…), RetryHere(…), RetryForever() "
                    "or Ignore()"
                )
        if self.limit is not None and not isinstance(self.limit, Limit):
            raise ValueError(f"limit is {self.limit!r}; it is a Limit")
        for name in ("decode", "scrub"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is a function")

    @cached_property
    def layout(self) -> Layout:
        """The names of its topics."""
        delays = dict.fromkeys(delay for strategy in self.strategies for delay in strategy.delays())
        dead_topics = self.dead_topics.values()
        return Layout(self.group, self.topics, delays, by_key=self.order == "key", dead_topics=dead_topics)

    @property
    def letter_kind(self) -> str:
        """What the key of a dead letter is: original, date or compact."""
        return "compact" if self.cleanup == "compact" else self.letter_key

    @property
    def strategies(self) -> list[Strategy]:
        """The strategy, and those of the rules."""
        return [self.strategy, *self.rules.values()]

    @property
    def uses_topics(self) -> bool:
        """Whether a record may wait in a retry topic."""
        return any(True for strategy in self.strategies for _ in strategy.delays())

    @property
    def writes_letters(self) -> bool:
        """Whether a record may become a dead letter: those of a fatal class do, whatever the strategy."""
        if self.fatal or self.on_damage == "skip":
            return True
        for strategy in self.strategies:
            if isinstance(strategy, Ignore):
                if strategy.alarm is not None and strategy.alarm.then == "dead letter":
                    return True
            elif not isinstance(strategy, RetryForever):
                return True
        return False

    @property
    def keeps_ledger(self) -> bool:
        """Whether anything can ever stand in its ledger."""
        recorded = any(isinstance(strategy, Ignore) and strategy.record for strategy in self.strategies)
        return recorded or self.uses_topics or self.writes_letters

    @cached_property
    def dead_backoff(self) -> RetryForever:
        """When a dead-letter handler that fails is called again: after the delays of the strategy, the last one for
        all further calls."""
        strategy = self.strategy
        if isinstance(strategy, RetryTopics):
            return RetryForever(list(strategy.delays_after))
        if isinstance(strategy, RetryHere):
            return RetryForever(strategy.backoff)
        return strategy if isinstance(strategy, RetryForever) else RetryForever()

    def step(self, rule: int, number: int) -> Step:
        """What follows failure `number` by the rule of that place, or the strategy (-1)."""
        return self.strategies[rule + 1].step(number)

    def retention_ms(self, delay_ms: int) -> int:
        """How long a retry topic must keep its records at least."""
        return max(RETENTION_MS_MIN, RETENTION_TIMES * (delay_ms + milliseconds(self.processing_time_max)))


def summary(policy: Policy) -> dict[str, Any]:
    """The policy as the ledger publishes it, for people and tools; functions are left out."""
    return {
        "v": 1,
        "group": policy.group,
        "topics": list(policy.topics),
        "strategy": described(policy.strategy),
        "rules": {kind.__name__: described(strategy) for kind, strategy in policy.rules.items()},
        "fatal": [kind.__name__ for kind in policy.fatal],
        "outage": [kind.__name__ for kind in policy.outage],
        "order": policy.order,
        "after_dead": policy.after_dead,
        "after": list(policy.after),
        "moves": policy.moves,
        "letter_key": policy.letter_key,
        "dead_topics": {kind.__name__: topic for kind, topic in policy.dead_topics.items()},
        "cleanup": policy.cleanup,
        "delays_ms": list(policy.layout.delays_ms),
        "processing_time_max_ms": milliseconds(policy.processing_time_max),
    }


def described(strategy: Strategy) -> dict[str, Any]:
    """One strategy as plain data."""
    found: dict[str, Any] = {"kind": type(strategy).__name__}
    match strategy:
        case RetryTopics():
            found |= {"delays": list(strategy.delays_after), "dead_letters": strategy.dead_letters}
        case RetryHere():
            then = strategy.then if isinstance(strategy.then, str) else described(strategy.then)
            found |= {"attempts": strategy.attempts, "then": then}
        case Ignore(alarm=alarm) if alarm is not None:
            found |= {"ratio": alarm.ratio, "over": alarm.over, "then": alarm.then}
    return found
