"""Describe how a group treats failures: its topics, retry strategy, order, circuit breaker and dead letters.

A policy is checked when it is created; ValueError names the first fault. A policy can be loaded from a TOML file
(`kafkalite.failures.policy_file`). Each member publishes the policy in the group's ledger, if the group needs one.

Thread rule: the values are immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.failures.arguments import NamedArguments, is_list, is_name
from kafkalite.failures.names import Layout, ledger_name
from kafkalite.failures.retry_strategies import (
    STRATEGIES,
    Ignore,
    Limit,
    RetryForever,
    RetryHere,
    RetryTopics,
    last_strategy,
)
from kafkalite.failures.times import UNITS_MS, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures.retry_strategies import Step, Strategy
    from kafkalite.failures.times import Duration

REASON_MAX: Final = 200
"""Characters of an error text in a ledger row."""
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
"""Records of a batch. This many fit into one transaction (kafkalite.failures.moves)."""
RETENTION_MS_MIN: Final = 7 * UNITS_MS["d"]
RETENTION_TIMES: Final = 10


@dataclass(frozen=True)
class Policy(NamedArguments):
    """A group's policy for records that fail.

    `group`             the consumer group
    `topics`            the topics that it reads
    `strategy`          what to do with a record that fails: RetryTopics, RetryHere, RetryForever or Ignore
    `fatal`             exception classes whose records become dead letters at once, without a retry
    `outage`            exception classes that mean that a system is down; they open the circuit breaker at once
    `rules`             other strategies by exception class; the first class that matches is used
    `order`             "none", or "key": records wait while an earlier record of their key is being retried; other
                        keys continue
    `after_dead`        with order="key", what follows when a record becomes a dead letter: "continue" with the next
                        record of the key, or "hold" the key until the letter is redriven and processed, or resolved
    `processing_time_max`   limit for one call of the handler. An async handler is then cancelled, which counts as a
                        failure; a sync handler is reported once per record
    `limit`             the failure rate that opens the circuit breaker. While it is open, only one record at a time is
                        tried, as a probe
    `after`             groups that must finish a record before this group handles it
    `on_dead`           what to do with a record that a group in `after` gave up: "skip", "process" or "wait"
    `on_damage`         what to do with a batch that cannot be read: "stop" ends the member; "skip" turns each of its
                        records into a dead letter without a value
    `reprocess`         what to do with records that the ledger lists as given up when they are read again: "skip"
                        them, "retry" them, or handle only those ("letters")
    `moves`             "exactly once" (in transactions) or "at least once"
    `decode`            function that turns the bytes of a value into what the handler gets; its errors are fatal
    `compat`            other header formats to write as well: "spring", "connect"
    `scrub`             function applied to each error text and stack trace before a topic, an alarm or the reason of a
                        stop contains it
    `letter_key`        keys of dead letters: "original", or "date", the UTC day of the last failure
    `dead_topics`       dead-letter topics by exception class, instead of dlq.GROUP.TOPIC; the first class that matches
                        is used. No other group may use these topics
    `cleanup`           cleanup policy of the dead-letter topics: "delete" keeps letters until they are resolved. With
                        "compact", each letter has a unique key (day and record), and resolving it writes a tombstone,
                        so the broker frees the space
    `skip_tombstones`   whether to skip records without a value
    `batch`             0: the handler gets one record per call; otherwise a list of at most this many records of one
                        partition (up to 500)
    `ahead_max`         records of a partition to read ahead
    `parked_max`        with order="key": stop reading a source partition while this many records wait in its retry
                        partition

    Errors: ValueError for a wrong value or combination; TypeError for an unknown argument.
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
            raise ValueError("dead_topics would get no dead letters: neither the strategy nor `fatal` writes any")
        if self.after_dead == "hold" and self.order != "key":
            raise ValueError('after_dead="hold" needs order="key"')
        own = {name for name, lane in self.layout.lanes.items() if lane.is_retry}
        own |= {self.layout.ledger, *self.layout.dead_lanes}
        ledgers = ledger_name("")
        if own & set(self.topics) or any(topic.startswith(ledgers) for topic in self.topics):
            raise ValueError("topics must not contain a ledger or the policy's own retry and dead-letter topics")

    def _check_kinds(self) -> None:
        """Check the types of the fields.

        Without this check, a wrong type would be noticed only when the first record fails.
        """
        for name in ("ahead_max", "parked_max"):
            self._require_whole(name, 1)
        self._require_whole("batch", 0, BATCH_MAX)
        self._require_flag("skip_tombstones")
        for name in ("topics", "after", "compat"):
            value = getattr(self, name)
            if not is_list(value) or not all(is_name(one) for one in value):
                raise ValueError(f"{name} must be a list of names, not {value!r}")
        for name in ("fatal", "outage"):
            if not is_list(getattr(self, name)):
                raise ValueError(f"{name} must be a list of exception classes, not {getattr(self, name)!r}")
        if not isinstance(self.rules, Mapping):
            raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                f"rules must be a dict of exception classes and strategies, not {self.rules!r}"
            )
        routes: Any = self.dead_topics
        if not isinstance(routes, Mapping) or not all(isinstance(one, str) for one in routes.values()):
            raise ValueError(
                "dead_topics must be a dict of exception classes and topics, such as "
                f'{{LookupError: "orders.unknown"}}, not {routes!r}'
            )
        for name in ("fatal", "outage", "rules", "dead_topics"):
            for kind in getattr(self, name):
                if not isinstance(kind, type) or not issubclass(kind, BaseException):
                    raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                        f"{name}: {kind!r} is not an exception class"
                    )
        for name, value in (("strategy", self.strategy), *(("rules", strategy) for strategy in self.rules.values())):
            if not isinstance(value, STRATEGIES):
                raise ValueError(  # noqa: TRY004  # as for all faults of a policy
                    f"{name}: {value!r} is not a strategy; use RetryTopics(…), RetryHere(…), RetryForever() or Ignore()"
                )
        if self.limit is not None and not isinstance(self.limit, Limit):
            raise ValueError(f"limit must be a Limit, not {self.limit!r}")
        for name in ("decode", "scrub"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a function, not {getattr(self, name)!r}")

    @cached_property
    def layout(self) -> Layout:
        """The names of the group's retry topics, dead-letter topics and ledger."""
        delays = dict.fromkeys(delay for strategy in self.strategies for delay in strategy.delays())
        dead_topics = self.dead_topics.values()
        return Layout(self.group, self.topics, delays, by_key=self.order == "key", dead_topics=dead_topics)

    @property
    def letter_kind(self) -> str:
        """The kind of keys of dead letters: "original", "date" or "compact"."""
        return "compact" if self.cleanup == "compact" else self.letter_key

    @property
    def strategies(self) -> list[Strategy]:
        """All strategies: `strategy`, then those of `rules`."""
        return [self.strategy, *self.rules.values()]

    @cached_property
    def last_strategies(self) -> list[Strategy]:
        """All strategies in the same order, each replaced by the one that applies after retries in place."""
        return [last_strategy(strategy) for strategy in self.strategies]

    @property
    def uses_topics(self) -> bool:
        """Whether the group needs retry topics."""
        return any(True for strategy in self.strategies for _ in strategy.delays())

    @property
    def writes_letters(self) -> bool:
        """Whether a record may become a dead letter. With fatal exceptions, this is true for every strategy."""
        if self.fatal or self.on_damage == "skip":
            return True
        for strategy in self.last_strategies:
            if isinstance(strategy, Ignore):
                if strategy.alarm is not None and strategy.alarm.then == "dead letter":
                    return True
            elif not isinstance(strategy, RetryForever):
                return True
        return False

    @property
    def keeps_ledger(self) -> bool:
        """Whether the group ever writes to its ledger."""
        recorded = any(isinstance(strategy, Ignore) and strategy.record for strategy in self.last_strategies)
        return recorded or self.uses_topics or self.writes_letters

    @cached_property
    def dead_backoff(self) -> RetryForever:
        """The backoff after a failed call of the dead-letter handler: the delays of the strategy.

        The last delay applies to all further calls.
        """
        strategy = self.strategy
        if isinstance(strategy, RetryTopics):
            return RetryForever(list(strategy.delays_after))
        if isinstance(strategy, RetryHere):
            return RetryForever(strategy.backoff)
        return strategy if isinstance(strategy, RetryForever) else RetryForever()

    def scrubbed(self, text: str) -> str:
        """Return an error text after `scrub`."""
        return self.scrub(text) if self.scrub else text

    def reason(self, text: str) -> str:
        """Return an error text for a ledger row, cut only after `scrub`, which may not recognize half a secret."""
        return self.scrubbed(text)[:REASON_MAX]

    def step(self, rule: int, number: int) -> Step:
        """Return the step after failure `number` (from 1) by the rule at index `rule`, or by the strategy (-1)."""
        return self.strategies[rule + 1].step(number)

    def retention_ms(self, delay_ms: int) -> int:
        """Return the minimum retention (ms) of a retry topic with this delay (ms)."""
        return max(RETENTION_MS_MIN, RETENTION_TIMES * (delay_ms + milliseconds(self.processing_time_max)))


def summary(policy: Policy) -> dict[str, Any]:
    """Return the policy as JSON data for the ledger. Functions are left out."""
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
    """Return one strategy as JSON data."""
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
