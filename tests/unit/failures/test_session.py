"""The core by situation: what a member is told, and what it wants done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafkalite.failures.events import (
    Action,
    Alarm,
    Arrival,
    Assigned,
    Commit,
    CommitEnded,
    Decided,
    Event,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    Goal,
    Message,
    Outcome,
    Pause,
    Put,
    Resume,
    Run,
    RunEnded,
    Start,
    Stop,
    Tick,
    Transact,
    TransactionEnded,
)
from kafkalite.failures.policy import Policy
from kafkalite.failures.rows import Row, State
from kafkalite.failures.session import Session
from kafkalite.failures.strategies import Ignore, Limit, Loss, RetryForever, RetryHere, RetryTopics
from kafkalite.failures.times import Moment
from kafkalite.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
BAD = Failure(FailureKind.RETRIABLE, "RuntimeError", text="no")
POISON = Failure(FailureKind.FATAL, "ValueError", text="bad")
AWAY = Failure(FailureKind.OUTAGE, "ConnectionError")


@dataclass
class Desk:
    """A session whose actions are carried out at once: transactions work, runs are handled by a function."""

    policy: Policy
    handler: Callable[[int], Failure | None] = lambda offset: None
    ms: float = 0.0
    puts: list[Put] = field(default_factory=list)
    rows: dict[str, Row | None] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    handled: list[int] = field(default_factory=list)
    paused: set[TopicPartition] = field(default_factory=set)
    stopped: bool = False
    too_large: int = 0

    def __post_init__(self) -> None:
        self.session = Session(self.policy, member="m", nonce="n", draw=lambda: 0.0)

    def assign(self, *, rows: dict[int, Row] | None = None, opened: Row | None = None) -> None:
        start = {ORDERS: Start(0, 0)}
        self.tell(Assigned(start, {ORDERS: rows or {}}, {} if opened is None else {ORDERS: opened}))

    def fetch(self, offsets: Iterable[int]) -> None:
        listed = list(offsets)
        arrivals = [Arrival(Message("orders", 0, offset, 0, b"k", b"v")) for offset in listed]
        self.tell(Fetched(ORDERS, arrivals, listed[-1] + 1))

    def tell(self, event: Event) -> None:
        waiting = [event]
        while waiting:
            for action in self.session.on(waiting.pop(0), Moment(1_000_000 + int(self.ms), self.ms)):
                waiting += self.carry_out(action)

    def carry_out(self, action: Action) -> list[Event]:
        match action:
            case Transact():
                if self.too_large and any(put.goal is Goal.DEAD and put.shrink < self.too_large for put in action.puts):
                    return [TransactionEnded(action.number, too_large=0)]
                self.puts += action.puts
                self.rows.update(action.rows)
                self.committed.update(action.offsets)
                return [TransactionEnded(action.number)]
            case Commit(offsets=offsets):
                self.committed.update(offsets)
                return [CommitEnded(offsets)]
            case Run():
                return self.run(action)
            case Alarm():
                self.alarms.append(action)
            case Pause(partition=key):
                self.paused.add(key)
            case Resume(partition=key):
                self.paused.discard(key)
            case Stop():
                self.stopped = True
        return []

    def run(self, run: Run) -> list[Event]:
        events: list[Event] = []
        failures = 0
        for message in run.messages:
            failure = self.handler(message.offset)
            self.handled.append(message.offset)
            events.append(Finished(run.partition, run.number, message.offset, Outcome(failure)))
            failures += failure is not None
            if failures >= run.failures_max or failure is AWAY:
                break
        return [*events, RunEnded(run.partition, run.number)]

    def advance(self, ms: float) -> None:
        """Time goes on, with a tick whenever one is wanted."""
        end = self.ms + ms
        while (wake := self.session.wake_at) is not None and wake <= end:
            self.ms = max(self.ms, wake)
            self.tell(Tick())
        self.ms = end
        self.tell(Tick())

    @property
    def kinds(self) -> list[str]:
        return [alarm.kind for alarm in self.alarms]


def policy(strategy: object, **options: object) -> Policy:
    return Policy(**{"group": "billing", "topics": ["orders"], "strategy": strategy, **options})


def test_a_fatal_record_is_a_letter_at_once_and_the_offset_goes_with_it() -> None:
    desk = Desk(policy(RetryTopics(["10 s"])), lambda offset: POISON if offset == 1 else None)
    desk.assign()
    desk.fetch(range(3))
    assert [(put.goal, put.topic, put.partition, put.message.offset) for put in desk.puts] == [
        (Goal.DEAD, "dlq.billing.orders", 0, 1)
    ]
    assert desk.rows["orders-0-1"].state is State.DEAD
    desk.advance(1000)
    assert desk.committed[ORDERS] == 3


def test_the_breaker_opens_after_a_few_letters_and_closes_by_itself() -> None:
    up = False
    desk = Desk(policy(RetryTopics(["10 s"]), limit=Limit(0.5, "1 min", least=20)), lambda offset: None if up else BAD)
    desk.assign()
    desk.fetch(range(400))
    desk.advance(60_000)
    assert len(desk.puts) <= 30
    assert desk.session.breaker_open
    up = True
    desk.advance(5000)
    assert not desk.session.breaker_open
    assert desk.kinds == ["breaker", "breaker"]
    assert len(desk.puts) <= 30
    assert desk.committed[ORDERS] == 400


def test_an_outage_uses_up_no_attempt() -> None:
    failures = [AWAY] * 50
    desk = Desk(policy(RetryHere(2, "10 ms")), lambda offset: failures.pop() if failures else None)
    desk.assign()
    desk.fetch([0])
    desk.advance(300_000)
    assert (desk.puts, desk.committed[ORDERS], len(desk.handled)) == ([], 1, 51)


def test_a_loss_is_an_alarm_above_its_share_and_none_below() -> None:
    for every, kinds in ((1112, []), (909, ["loss"])):
        desk = Desk(
            policy(Ignore(alarm=Loss(0.001, "1 min", least=1000))),
            lambda offset, every=every: BAD if offset % every == every - 1 else None,
        )
        desk.assign()
        for first in range(0, 20_000, 100):
            desk.fetch(range(first, first + 100))
            desk.advance(1)
        assert desk.kinds[:1] == kinds
        assert desk.session.counts["ignored", "orders"] == 20_000 // every


def test_after_a_loss_records_may_become_letters_or_the_member_ends() -> None:
    for then, letters in (("dead letter", True), ("stop", False)):
        desk = Desk(policy(Ignore(alarm=Loss(0.1, "1 min", least=5, then=then))), lambda offset: BAD)
        desk.assign()
        desk.fetch(range(10))
        desk.advance(2000)
        assert (bool(desk.puts), desk.stopped) == (letters, not letters)


def test_a_record_that_is_tried_for_ever_is_an_alarm_by_its_age() -> None:
    desk = Desk(policy(RetryForever("1 s", alarm_after="10 s")), lambda offset: BAD)
    desk.assign()
    desk.fetch(range(5))
    desk.advance(60_000)
    assert desk.kinds == ["age"]
    assert set(desk.handled) == {0}


def test_a_partition_that_was_not_given_up_is_taken_one_by_one() -> None:
    desk = Desk(policy(RetryTopics(["10 s"])))
    desk.assign(rows={1: Row(State.TRYING, tries=2)}, opened=Row(State.OPEN, position=0))
    desk.fetch(range(3))
    assert [put.failure.name for put in desk.puts] == ["crashed"]
    assert desk.handled == [0, 2]
    assert desk.kinds == ["crashed"]
    assert desk.rows["orders-0-0"] is None


def test_what_does_not_fit_goes_with_less() -> None:
    desk = Desk(policy(RetryHere(1)), lambda offset: BAD, too_large=3)
    desk.assign()
    desk.fetch([0])
    desk.advance(2000)
    assert [put.shrink for put in desk.puts] == [3]


def test_reading_stops_where_there_is_no_room_and_goes_on_later() -> None:
    failing = True
    desk = Desk(policy(RetryForever("1 s"), ahead_max=10), lambda offset: BAD if failing else None)
    desk.assign()
    desk.fetch(range(20))
    assert desk.paused == {ORDERS}
    failing = False
    desk.advance(5000)
    assert (desk.paused, desk.committed[ORDERS]) == (set(), 20)


def test_a_group_waits_for_another() -> None:
    desk = Desk(policy(RetryTopics(["10 s"]), after=["fraud"]))
    desk.assign()
    desk.fetch(range(6))
    assert (desk.handled, desk.session.waits) == ([], {ORDERS: "fraud"})
    desk.tell(Decided("fraud", ORDERS, 5, frozenset({3}), frozenset({1})))
    assert desk.handled == [0, 2]  # 1 was given up by fraud, of 3 it does not know yet
    assert desk.rows["orders-0-1"].state is State.SKIPPED
    desk.tell(Decided("fraud", ORDERS, 6))
    assert desk.handled == [0, 2, 3, 4, 5]


def test_reprocessing_steps_over_the_dead_or_takes_them_alone() -> None:
    rows = {2: Row(State.DEAD), 4: Row(State.DEAD), 5: Row(State.RETRYING)}
    for mode, handled in (("skip", [0, 1, 3]), ("letters", [2, 4]), ("retry", [0, 1, 2, 3, 4])):
        desk = Desk(policy(RetryTopics(["10 s"]), reprocess=mode))
        desk.assign(rows=rows)
        desk.fetch(range(6))
        desk.advance(2000)
        assert (mode, desk.handled, desk.committed[ORDERS]) == (mode, handled, 6)


def test_a_policy_may_say_to_stop() -> None:
    desk = Desk(policy(RetryHere(2, "10 ms", then="stop")), lambda offset: BAD if offset == 2 else None)
    desk.assign()
    desk.fetch(range(5))
    desk.advance(1000)
    assert desk.stopped
    assert desk.handled == [0, 1, 2, 2]
