"""The core by situation: what a member is told, and what it wants done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from kafkalite.failures.events import (
    Action,
    Alarm,
    Arrival,
    Assigned,
    Commit,
    CommitEnded,
    Damaged,
    Decided,
    Event,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    Goal,
    Letter,
    Lost,
    Message,
    Outcome,
    Output,
    Pause,
    Put,
    Released,
    Resume,
    Revoked,
    Revoking,
    Run,
    RunEnded,
    Start,
    Stop,
    Tick,
    Transact,
    TransactionEnded,
)
from kafkalite.failures.lanes import COMMIT_COUNT, IN_HAND_MAX, RUN_MAX, key_digest
from kafkalite.failures.metrics import Late, exposition
from kafkalite.failures.moves import AGAIN_MS
from kafkalite.failures.names import parse_origin
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import Ignore, Limit, Loss, RetryForever, RetryHere, RetryTopics
from kafkalite.failures.rows import Row, State, decode_row, encode_row, hand_key
from kafkalite.failures.session import CAREFUL_COUNT, Session
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
    nonce: str = "n"
    puts: list[Put] = field(default_factory=list)
    rows: dict[str, Row | None] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    handled: list[int] = field(default_factory=list)
    paused: set[TopicPartition] = field(default_factory=set)
    stopped: bool = False
    too_large: int = 0
    noted: list[int] = field(default_factory=list)
    """How many records each transaction notes as in hand,"""
    alone: list[int] = field(default_factory=list)
    """and those that are alone."""

    def __post_init__(self) -> None:
        self.session = Session(self.policy, member="m", nonce=self.nonce, draw=lambda: 0.0)

    def assign(self, *, rows: dict[int, Row] | None = None, opened: Row | None = None) -> None:
        start = {ORDERS: Start(0, 0, 0)}
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
                trying = [name for name, row in action.rows if row is not None and row.is_suspect]
                self.noted += [len(trying)] if trying else []
                lane = self.session._lanes.get(ORDERS)
                if trying and lane is not None and lane.batch.alone:
                    self.alone += [int(name.rpartition("-")[2]) for name in trying]
                self.rows.update(action.rows)
                self.committed.update(action.offsets)
                return [TransactionEnded(action.number)]
            case Commit(number=number, offsets=offsets):
                self.committed.update(offsets)
                return [CommitEnded(number)]
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


def test_an_ignore_after_retries_in_place_has_its_alarm_and_its_rows() -> None:
    for then, stopped in ((None, False), ("stop", True)):
        strategy = RetryHere(2, "1 s", then=Ignore(alarm=Loss(0.1, "1 min", least=2, then=then), record=True))
        desk = Desk(policy(strategy), lambda offset: BAD)
        desk.assign()
        desk.fetch(range(3))
        desk.advance(10_000)
        assert desk.kinds[:1] == ["loss"]
        assert desk.stopped is stopped
        row = desk.rows["orders-0-0"]
        assert row is not None
        assert row.state is State.IGNORED


def test_a_record_that_is_tried_for_ever_after_retries_in_place_is_an_alarm_by_its_age() -> None:
    nested = RetryHere(2, "1 s", then=RetryHere(2, "1 s", then=RetryForever("1 s", alarm_after="10 s")))
    desk = Desk(policy(Ignore(), rules={RuntimeError: nested}), lambda offset: BAD._replace(rule=0))
    desk.assign()
    desk.fetch([0])
    desk.advance(60_000)
    assert desk.kinds == ["age"]


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [(RetryHere(1), []), (RetryHere(1, then="stop"), ["stopped"]), (RetryForever("1 s", alarm_after="1 s"), ["age"])],
)
def test_ledger_and_alarms_have_scrubbed_texts(strategy: object, kinds: list[str]) -> None:
    text = "x" * 195 + "password=4711"
    said: list[str] = []

    def scrub(one: str) -> str:
        said.append(one)
        return one.replace("password=4711", "…")

    desk = Desk(policy(strategy, scrub=scrub), lambda offset: BAD._replace(text=text))
    desk.assign()
    desk.fetch([0])
    desk.advance(5000)
    reasons = [row.reason for row in desk.rows.values() if row is not None and row.reason]
    assert reasons == ([] if kinds else ["x" * 195 + "…"])
    assert desk.kinds == kinds
    assert not any("pass" in alarm.text for alarm in desk.alarms)
    assert set(said) == {text}


def test_rows_of_earlier_versions_are_read_and_theirs_leave_out_what_they_do_not_know() -> None:
    old = b'{"v": 1, "state": "trying", "last": 7, "member": "m", "tries": 1}'
    assert decode_row(old) == Row(State.TRYING, last=7, member="m", tries=1)
    assert encode_row(decode_row(old)) == old
    assert decode_row(encode_row(Row(State.OPEN, position=3, until=9))).until == 9
    with pytest.raises(
        ValueError, match="is not a record"
    ):  # so an earlier version counts a mark as unread, and no more
        parse_origin(hand_key(TopicPartition("a-1", 0)))


def test_records_are_noted_in_growing_batches_after_an_unclean_end_and_only_those_that_were_there() -> None:
    desk = Desk(policy(RetryTopics(["10 s"])))
    desk.tell(Assigned({ORDERS: Start(0, 300, 300)}, {}, {ORDERS: Row(State.OPEN, position=0)}))
    desk.fetch(range(400))
    desk.advance(2000)
    assert desk.handled == list(range(400))
    assert desk.noted == [1, 16, 256, 27]
    assert desk.rows["open/orders-0"].until == -1
    assert desk.rows["hand/orders/0"] is None
    assert {row for name, row in desk.rows.items() if name.startswith("orders-0-")} == {None}


@pytest.mark.parametrize(
    ("hand", "alone"),
    [
        (None, [0, 1, 2, 3]),
        (Row(State.OPEN, member="m", last=5, position=2, tries=1), [2]),
        (Row(State.OPEN, member="m", last=5, position=1, until=3), [1, 2]),
        (Row(State.OPEN, member="m", last=4, position=2, tries=1), [0, 1, 2, 3]),
    ],
    ids=["no mark", "one", "two", "of another batch"],
)
def test_of_a_batch_that_was_in_hand_what_is_marked_is_alone_or_all_of_it(hand: Row | None, alone: list[int]) -> None:
    desk = Desk(policy(RetryTopics(["10 s"])))
    noted = {offset: Row(State.TRYING, member="m", last=5, among=4) for offset in range(4)}
    hands = {} if hand is None else {ORDERS: hand}
    desk.tell(Assigned({ORDERS: Start(0, 8, 8)}, {ORDERS: noted}, {ORDERS: Row(State.OPEN, position=0)}, hands))
    desk.fetch(range(8))
    desk.advance(2000)
    assert desk.handled == list(range(8))
    assert desk.alone == alone


@pytest.mark.parametrize("tries", [0, 1, 2])
def test_a_record_is_crashed_once_two_ends_found_it_noted_as_in_hand(tries: int) -> None:
    desk = Desk(policy(RetryTopics(["10 s"])))
    desk.assign(rows={0: Row(State.TRYING, tries=tries)} if tries else {}, opened=Row(State.OPEN, position=0))
    desk.fetch(range(1))
    assert (desk.handled, desk.kinds) == (([], ["crashed"]) if tries == 2 else ([0], []))


def test_a_record_that_was_resolved_is_stepped_over_or_tried_again_as_a_dead_one() -> None:
    for reprocess, handled in (("skip", [0, 2]), ("retry", [0, 1, 2]), ("letters", [1])):
        desk = Desk(policy(RetryTopics(["10 s"]), reprocess=reprocess))
        desk.assign(rows={1: Row(State.RESOLVED)})
        desk.fetch(range(3))
        assert desk.handled == handled


@pytest.mark.parametrize("state", [State.DEAD, State.RETRYING, State.SKIPPED])
def test_rows_of_a_topic_that_was_deleted_say_nothing_about_the_records_of_a_new_one(state: State) -> None:
    rows = {0: Row(state, "old", topic_id="A"), 1: Row(state, "new", topic_id="B"), 2: Row(state, "unknown")}
    desk = Desk(policy(RetryTopics(["1 s"])), lambda offset: BAD)
    desk.tell(Assigned({ORDERS: Start(0, 0, 0)}, {ORDERS: rows}, {}, topic_ids={"orders": "B"}))
    desk.fetch(range(4))
    assert desk.handled == [0, 3]
    row = desk.rows["orders-0-3"]
    assert row is not None
    assert (row.state, row.topic_id) == (State.RETRYING, "B")


def test_a_letter_of_a_topic_that_was_deleted_is_retried_and_keeps_the_id_of_its_topic() -> None:
    retry = TopicPartition("retry.billing.orders.1s", 0)
    row = Row(State.RETRYING, "old", *retry, attempt=1, topic_id="A")
    desk = Desk(policy(RetryTopics(["1 s"])), lambda offset: BAD)
    starts = {ORDERS: Start(0, 0, 0), retry: Start(0, 1, 1)}
    desk.tell(Assigned(starts, {ORDERS: {5: row}}, {}, topic_ids={"orders": "B"}))
    letter = Letter("old", "billing", ORDERS, 5, 1)
    desk.tell(Fetched(retry, [Arrival(Message(*retry, 0, 0, b"k", b"v"), letter)], 1))
    dead = desk.rows["orders-0-5"]
    assert dead is not None
    assert (dead.state, dead.topic_id) == (State.DEAD, "A")


def test_a_partition_that_was_not_given_up_is_taken_one_by_one() -> None:
    desk = Desk(policy(RetryTopics(["10 s"])))
    desk.assign(rows={1: Row(State.TRYING, tries=2)}, opened=Row(State.OPEN, position=0))
    desk.fetch(range(3))
    assert [put.failure.name for put in desk.puts] == ["crashed"]
    assert desk.handled == [0, 2]
    assert desk.kinds == ["crashed"]
    assert desk.rows["orders-0-0"] is None


@dataclass
class DoubtingDesk(Desk):
    """Record 0 is a suspect; that it was handled is refused once. `begun` says of each run whether it is one still."""

    begun: list[tuple[str, bool]] = field(default_factory=list)
    tries: int = 1
    refused: bool = False

    def __post_init__(self) -> None:
        self.session = Session(self.policy, member="m", nonce="n", draw=lambda: 0.0, by_partition=True)

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Run):
            self.begun.append((f"{action.partition}-{action.messages[0].offset}", self.tries > 1))
        elif isinstance(action, Transact):
            rows = dict(action.rows)
            if "orders-0-0" in rows:
                row = rows["orders-0-0"]
                if row is None and not self.refused:
                    self.refused = True
                    return [TransactionEnded(action.number, failed=True)]
                self.tries = row.tries if row else 0
        return super().carry_out(action)


def test_nothing_is_begun_before_it_is_written_what_became_of_a_suspect() -> None:
    """Also where that has to be written twice, and a transaction is about one partition: if the process ends by what
    comes next, the ledger does not say that it was the suspect."""
    other = TopicPartition("orders", 1)
    desk = DoubtingDesk(policy(RetryTopics(["10 s"])))
    marks = {key: Row(State.OPEN, position=0) for key in (ORDERS, other)}
    desk.tell(Assigned({key: Start(0, 2, 2) for key in marks}, {ORDERS: {0: Row(State.TRYING, tries=1)}}, marks))
    for key in marks:
        desk.tell(arrivals(key, [0, 1]))
    desk.advance(2000)
    assert sorted(name for name, _ in desk.begun) == ["orders-0-0", "orders-0-1", "orders-1-0", "orders-1-1"]
    assert [name for name, doubted in desk.begun if doubted] == ["orders-0-0"]


@pytest.mark.parametrize("old_fails", [False, True])
def test_a_letter_of_a_deleted_topic_leaves_the_row_of_the_new_record_at_its_offset(old_fails: bool) -> None:
    retry = TopicPartition("retry.billing.orders.1s", 0)
    made = policy(RetryTopics(["1 s"]))
    old = Row(State.RETRYING, "old", *retry, attempt=1, topic_id="A")
    new_fails = True
    desk = Desk(made, lambda offset: BAD if (new_fails and offset == 0) or (old_fails and offset == 7) else None)
    starts = {ORDERS: Start(0, 0, 0), retry: Start(7, 8, 8)}
    desk.tell(Assigned(starts, {ORDERS: {0: old}}, {}, topic_ids={"orders": "B"}))
    desk.fetch([0])
    row = desk.rows["orders-0-0"]
    assert row is not None
    assert (row.state, row.topic_id, row.id != "old") == (State.RETRYING, "B", True)

    new_fails = False
    desk.tell(Fetched(retry, [Arrival(Message(*retry, 7, 0, b"k", b"v"), Letter("old", "billing", ORDERS, 0, 1))], 8))
    desk.advance(5000)
    assert desk.handled == [0, 7]
    assert desk.rows["orders-0-0"] == row
    assert [put.goal for put in desk.puts] == ([Goal.RETRY, Goal.DEAD] if old_fails else [Goal.RETRY])

    letter = Arrival(Message(*retry, 8, 0, b"k", b"v"), Letter(row.id, "billing", ORDERS, 0, 1))
    if not old_fails:  # also after the next assignment, the new letter is handled, and its row is deleted
        again = Desk(made)
        again.tell(Assigned({retry: Start(8, 9, 9)}, {ORDERS: {0: row}}, {}, topic_ids={"orders": "B"}))
        again.tell(Fetched(retry, [letter], 9))
        again.advance(5000)
        assert (again.handled, again.rows["orders-0-0"]) == ([8], None)
    desk.tell(Fetched(retry, [letter], 9))
    desk.advance(5000)
    assert (desk.handled, desk.rows["orders-0-0"]) == ([0, 7, 8], None)


def test_what_does_not_fit_goes_with_less() -> None:
    desk = Desk(policy(RetryHere(1)), lambda offset: BAD, too_large=3)
    desk.assign()
    desk.fetch([0])
    desk.advance(2000)
    assert [put.shrink for put in desk.puts] == [3]


class SendingDesk(Desk):
    """A handler that sends a record for each. That for `refused` is too large for its topic."""

    refused = "done-1"

    def run(self, run: Run) -> list[Event]:
        outcomes = [Outcome(outputs=(Output(f"done-{one.offset}", 0, b"k", b"v"),)) for one in run.messages]
        finished = zip(run.messages, outcomes, strict=True)
        events = [Finished(run.partition, run.number, one.offset, outcome) for one, outcome in finished]
        return [*events, RunEnded(run.partition, run.number)]

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Transact):
            topics = [put.topic for put in action.puts]
            if self.refused in topics:
                return [TransactionEnded(action.number, too_large=topics.index(self.refused))]
        return super().carry_out(action)


def test_an_output_that_is_too_large_stops_the_member_which_writes_what_came_before() -> None:
    desk = SendingDesk(policy(RetryHere(1)))
    desk.assign()
    desk.fetch(range(3))
    desk.advance(2000)
    assert desk.stopped
    assert [alarm.text for alarm in desk.alarms] == [
        "the handler's output for orders-0-1 is too large for topic done-1; send less, or raise its max.message.bytes"
    ]
    desk.tell(Revoking([ORDERS]))
    desk.tell(Revoked([ORDERS]))
    assert not desk.session.is_closing
    assert (desk.committed[ORDERS], [put.topic for put in desk.puts]) == (1, ["done-0"])


RETRY_BY_KEY = TopicPartition("retry.billing.orders", 0)


@dataclass
class SlowDesk(SendingDesk):
    """A desk whose transactions wait while `holds`."""

    refused = "done-2"
    holds: bool = False
    held: list[Transact] = field(default_factory=list)

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Transact) and self.holds:
            self.held.append(action)
            return []
        return super().carry_out(action)


def test_an_output_that_is_too_large_lets_the_last_transaction_of_a_partition_write_what_came_before() -> None:
    desk = SlowDesk(policy(RetryHere(1)))
    desk.assign()
    desk.holds = True
    desk.fetch([0])
    desk.advance(100)
    desk.fetch([1, 2, 3])
    desk.tell(Revoking([ORDERS]))
    desk.tell(Revoked([ORDERS]))
    desk.holds = False
    (transact,) = desk.held
    for event in desk.carry_out(transact):
        desk.tell(event)
    assert not desk.session.is_closing
    assert (desk.committed[ORDERS], [put.topic for put in desk.puts]) == (2, ["done-0", "done-1"])


@dataclass
class KeyedDesk(Desk):
    """The output of each letter has the letter's offset. That of letter 0 is too large for its topic.

    With `running`, the transaction ends while letter 1 is being handled.
    """

    running: bool = False
    waiting: list[Event] = field(default_factory=list)

    def run(self, run: Run) -> list[Event]:
        self.handled += [one.offset for one in run.messages]
        outcomes = [(one, Outcome(outputs=(Output(f"done-{one.offset}", 0, b"k", b"v"),))) for one in run.messages]
        events = [Finished(run.partition, run.number, one.offset, outcome) for one, outcome in outcomes]
        ended: list[Event] = [*events, RunEnded(run.partition, run.number)]
        if self.running and run.messages[0].offset == 1:
            self.waiting = ended
            return []
        return ended

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Transact):
            topics = [put.topic for put in action.puts]
            if "done-0" in topics:
                return [TransactionEnded(action.number, too_large=topics.index("done-0"))]
        return super().carry_out(action)


@pytest.mark.parametrize("running", [False, True])
def test_no_letter_of_a_key_is_written_before_one_whose_output_was_too_large(running: bool) -> None:
    desk = KeyedDesk(policy(RetryTopics(["1 s"]), order="key"), running=running)
    rows = {
        5: Row(State.RETRYING, "a", *RETRY_BY_KEY, attempt=1),
        6: Row(State.PARKED, "b", *RETRY_BY_KEY),
        7: Row(State.RETRYING, "c", *RETRY_BY_KEY, attempt=1),
    }
    desk.tell(Assigned({ORDERS: Start(8, 0, 8), RETRY_BY_KEY: Start(0, 3, 3)}, {ORDERS: rows}, {}))
    letters = [(0, b"k", Letter("a", "billing", ORDERS, 5, 1)), (1, b"k", Letter("b", "billing", ORDERS, 6, 0))]
    letters.append((2, b"other", Letter("c", "billing", ORDERS, 7, 1)))
    came = [Arrival(Message(*RETRY_BY_KEY, offset, 0, key, b"v"), letter) for offset, key, letter in letters]
    desk.tell(Fetched(RETRY_BY_KEY, came, 3))
    desk.advance(5000)
    assert sorted(desk.handled) == [0, 1, 2]
    assert desk.stopped
    for event in desk.waiting:
        desk.tell(event)
    desk.tell(Revoking([ORDERS, RETRY_BY_KEY]))
    desk.tell(Revoked([ORDERS, RETRY_BY_KEY]))
    assert [put.topic for put in desk.puts] == ["done-2"]
    assert [name for name in desk.rows if name.startswith("orders-")] == ["orders-0-7"]
    assert desk.committed[RETRY_BY_KEY] == 0


def test_reading_stops_where_there_is_no_room_and_goes_on_later() -> None:
    failing = True
    desk = Desk(policy(RetryForever("1 s"), ahead_max=10), lambda offset: BAD if failing else None)
    desk.assign()
    desk.fetch(range(20))
    assert desk.paused == {ORDERS}
    failing = False
    desk.advance(5000)
    assert (desk.paused, desk.committed[ORDERS]) == (set(), 20)


def test_letters_are_read_on_while_those_before_them_are_being_written() -> None:
    retry = TopicPartition("retry.billing.orders.10s", 0)
    session = Session(policy(RetryTopics(["10 s"]), ahead_max=10), member="m", nonce="n", draw=lambda: 0.0)

    def told(event: Event) -> list[Action]:
        return session.on(event, Moment(1_000_000, 0.0))

    def fetched(first: int) -> Fetched:
        letters = [Letter(f"id-{n}", "billing", ORDERS, n, 1) for n in range(first, first + 10)]
        arrivals = [Arrival(Message(*retry, one.offset, 0, None, b"v"), one) for one in letters]
        return Fetched(retry, arrivals, first + 10)

    (opening,) = told(Assigned({retry: Start(0, 0, 0)}, {}, {}))
    assert isinstance(opening, Transact)
    told(TransactionEnded(opening.number))
    run, pause = told(fetched(0))
    assert isinstance(run, Run)
    assert pause == Pause(retry)
    done = [Finished(retry, run.number, offset, Outcome()) for offset in range(10)]
    found = session.on_all([*done, RunEnded(retry, run.number)], Moment(1_000_000, 0.0))
    assert [type(action) for action in found] == [Transact, Resume]  # it has not ended


def test_no_more_is_passed_over_while_it_is_being_written_than_there_is_room_for() -> None:
    session = Session(policy(RetryTopics(["10 s"]), ahead_max=10), member="m", nonce="n", draw=lambda: 0.0)
    tell = opened(session, ORDERS)
    (writing,) = tell(Damaged(ORDERS, 0, 100, "its CRC is wrong"), 1.0)[-1:]
    assert isinstance(writing, Transact)
    found: list[Action] = []
    passed = 100
    while not any(isinstance(action, Pause) for action in found):
        found = tell(Damaged(ORDERS, passed, passed + 1, "its CRC is wrong"), 1.0)
        passed += 1
        assert passed <= IN_HAND_MAX + 10
    assert passed == IN_HAND_MAX + 10
    assert [type(action) for action in tell(TransactionEnded(writing.number), 2.0)] == [Transact, Resume]


def test_a_group_waits_for_another() -> None:
    desk = Desk(policy(RetryTopics(["10 s"]), after=["fraud"]))
    desk.assign()
    desk.fetch(range(6))
    assert (desk.handled, desk.session.waits) == ([], {ORDERS: "fraud"})
    text = exposition(desk.session, Late(), "billing")
    assert 'kafkalite_failures_waits_for{group="billing",other="fraud"} 1\n' in text
    desk.tell(Decided("fraud", ORDERS, 5, frozenset({3}), frozenset({1})))
    assert desk.handled == [0, 2]  # 1 was given up by fraud, of 3 it does not know yet
    assert desk.rows["orders-0-1"].state is State.SKIPPED
    desk.tell(Decided("fraud", ORDERS, 6))
    assert desk.handled == [0, 2, 3, 4, 5]
    assert desk.session.waits == {}


def test_what_another_group_gave_up_may_be_waited_for_or_handled() -> None:
    for on_dead, handled in (("process", [0, 1, 2]), ("wait", [0])):
        desk = Desk(policy(RetryTopics(["10 s"]), after=["fraud"], on_dead=on_dead))
        desk.assign()
        desk.fetch(range(3))
        desk.tell(Decided("fraud", ORDERS, 3, frozenset(), frozenset({1})))
        assert (on_dead, desk.handled) == (on_dead, handled)
    desk.tell(Decided("fraud", ORDERS, 3, frozenset({1})))  # redriven: nobody knows yet
    assert desk.handled == [0]
    desk.tell(Decided("fraud", ORDERS, 3))
    assert desk.handled == [0, 1, 2]


def opened(session: Session, *partitions: TopicPartition) -> Callable[[Event, float], list[Action]]:
    """What tells a session that has these partitions something, at a time in ms; plain commits are done at once."""

    def tell(event: Event, ms: float) -> list[Action]:
        moment = Moment(1_000_000 + int(ms), ms)
        actions = session.on(event, moment)
        for action in actions:
            if isinstance(action, Commit):
                assert session.on(CommitEnded(action.number), moment) == []
        return [action for action in actions if not isinstance(action, Commit)]

    starts = {key: Start(0, 0, 0) for key in partitions}
    (transact,) = tell(Assigned(starts, {}, {}), 0.0)
    assert isinstance(transact, Transact)
    assert tell(TransactionEnded(transact.number), 0.0) == []
    return tell


def arrivals(partition: TopicPartition, offsets: Iterable[int], key: bytes = b"k") -> Fetched:
    found = [Arrival(Message(*partition, offset, 0, key, b"v")) for offset in offsets]
    return Fetched(partition, found, found[-1].message.offset + 1)


def test_what_is_to_be_written_waits_for_more_while_there_is_something_to_handle() -> None:
    tell = opened(Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0), ORDERS)
    (run,) = tell(arrivals(ORDERS, range(200)), 0.0)
    for offset in range(64):
        assert tell(Finished(ORDERS, run.number, offset, Outcome(BAD)), 1.0) == []
    (following,) = tell(RunEnded(ORDERS, run.number), 2.0)
    assert following.messages[0].offset == 64
    assert tell(Tick(), 50.0) == []
    (transact,) = tell(Tick(), 51.0)
    assert ([put.goal for put in transact.puts], transact.offsets) == ([Goal.RETRY] * 64, {ORDERS: 64})
    tell(TransactionEnded(transact.number), 52.0)
    for offset in range(64, 128):
        failure = BAD if offset == 100 else None
        assert tell(Finished(ORDERS, following.number, offset, Outcome(failure)), 53.0) == []
    (last,) = tell(RunEnded(ORDERS, following.number), 53.0)
    for offset in range(128, 192):
        tell(Finished(ORDERS, last.number, offset, Outcome()), 54.0)
    (rest,) = tell(RunEnded(ORDERS, last.number), 54.0)
    for offset in range(192, 200):
        assert tell(Finished(ORDERS, rest.number, offset, Outcome()), 54.0) == []
    (at_once,) = tell(RunEnded(ORDERS, rest.number), 54.0)  # nothing is left to handle
    assert (len(at_once.puts), at_once.offsets) == (1, {ORDERS: 200})


def test_a_retry_is_not_due_a_part_of_a_millisecond_early() -> None:
    session = Session(policy(RetryTopics(["10 s"], jitter=0.0)), member="m", nonce="n", draw=lambda: 0.0)
    tell = opened(session, ORDERS)
    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 5.9)
    (transact,) = tell(RunEnded(ORDERS, run.number), 5.9)
    assert transact.puts[0].letter.due == 1_000_006 + 10_000


RETRIES = TopicPartition("retry.billing.orders", 0)


def keyed(after_dead: str, strategy: object, rows: dict[int, Row], **options: object) -> Desk:
    """With order by key, and as many letters of one key in its retry partition as there are rows that wait."""
    desk = Desk(policy(strategy, order="key", after_dead=after_dead), **options)
    waiting = [offset for offset, row in rows.items() if row.id]
    starts = {ORDERS: Start(9, 9, 9), RETRIES: Start(0, len(waiting), len(waiting))}
    desk.tell(Assigned(starts, {ORDERS: rows}, {}))
    letters = [
        Arrival(
            Message(*RETRIES, place, 0, b"k", b"%d" % offset), Letter(rows[offset].id, "billing", ORDERS, offset, 1)
        )
        for place, offset in enumerate(waiting)
    ]
    desk.tell(Fetched(RETRIES, letters, len(waiting)))
    return desk


def waits(offset: int, state: State = State.PARKED) -> Row:
    return Row(state, f"id-{offset}", *RETRIES)


def test_the_next_of_a_key_need_not_wait_until_its_predecessor_is_written() -> None:
    session = Session(policy(RetryTopics(["10 s"]), order="key"), member="m", nonce="n", draw=lambda: 0.0)
    rows = {offset: waits(offset) for offset in (3, 5)}
    moment = Moment(1_000_000, 0.0)
    (transact,) = session.on(Assigned({ORDERS: Start(9, 9, 9), RETRIES: Start(0, 2, 2)}, {ORDERS: rows}, {}), moment)
    session.on(TransactionEnded(transact.number), moment)
    letters = [
        Arrival(Message(*RETRIES, place, 0, b"k", b""), Letter(f"id-{offset}", "billing", ORDERS, offset))
        for place, offset in enumerate(rows)
    ]
    (first,) = session.on(Fetched(RETRIES, letters, 2), moment)
    assert [message.offset for message in first.messages] == [0]
    assert session.on(Finished(RETRIES, first.number, 0, Outcome()), moment) == []
    (second,) = session.on(RunEnded(RETRIES, first.number), moment)
    assert [message.offset for message in second.messages] == [1]
    newcomer = session.on(arrivals(ORDERS, [9]), moment)
    assert newcomer == []  # its predecessors may yet be undone by a death: parked, behind them
    session.on(Finished(RETRIES, second.number, 1, Outcome()), moment)
    (transact,) = session.on(RunEnded(RETRIES, second.number), moment)
    assert [(put.goal, put.message.offset) for put in transact.puts] == [(Goal.PARK, 9)]
    assert [(where, None if row is None else row.state) for where, row in transact.rows] == [
        ("orders-0-9", State.PARKED),
        ("orders-0-3", None),
        ("orders-0-5", None),
    ]


def test_a_key_goes_on_behind_a_dead_record_or_is_held() -> None:
    for after_dead, handled in (("continue", [0, 1]), ("hold", [0])):
        rows = {3: waits(3, State.RETRYING), 5: waits(5)}
        desk = keyed(after_dead, RetryTopics(["10 s"]), rows, handler=lambda offset: POISON if offset == 0 else None)
        desk.advance(2000)
        assert (after_dead, desk.handled) == (after_dead, handled)
        assert desk.kinds == ["held"] * (after_dead == "hold")
        assert desk.rows["orders-0-3"].state is State.DEAD
        assert bool(desk.rows["orders-0-3"].held) == (after_dead == "hold")


def test_a_held_key_is_parked_until_somebody_lets_it_go() -> None:
    desk = keyed("hold", RetryTopics(["10 s"]), {3: Row(State.DEAD, held=key_digest(b"k"))})
    desk.tell(arrivals(ORDERS, [9, 10]))
    desk.tell(arrivals(ORDERS, [11], b"another"))
    desk.advance(2000)
    assert desk.handled == [11]
    assert desk.session.held_keys == 1
    assert desk.session.holders == {ORDERS: [3]}
    assert [(put.goal, put.message.offset) for put in desk.puts] == [(Goal.PARK, 9), (Goal.PARK, 10)]
    parked = [Arrival(put.message._replace(offset=place), put.letter) for place, put in enumerate(desk.puts)]
    desk.tell(Fetched(RETRIES, parked, 2))
    desk.advance(2000)
    assert desk.handled == [11]
    desk.tell(Released(ORDERS, 3))
    desk.advance(2000)
    assert desk.handled == [11, 0, 1]
    assert (desk.session.holders, desk.session.parked_keys) == ({}, 0)


def test_what_a_held_key_waits_for_comes_before_what_was_parked_first() -> None:
    dead = waits(3, State.REDRIVEN)._replace(held=key_digest(b"k"))
    rows = {5: waits(5), 7: waits(7), 3: dead}
    failing = True
    strategy = RetryTopics(["10 s", "10 s"], jitter=0.0)
    desk = keyed("hold", strategy, rows, handler=lambda offset: BAD if failing and offset == 2 else None)
    assert desk.handled == [2]  # the third letter of the partition is the redriven one
    assert desk.rows["orders-0-3"].held == dead.held
    failing = False
    desk.advance(20_000)
    assert desk.handled == [2, 2, 0, 1]
    assert [desk.rows[f"orders-0-{offset}"] for offset in (3, 5, 7)] == [None] * 3
    assert desk.session.held_keys == 0


def test_what_only_has_to_be_parked_is_not_taken_for_what_ends_the_process() -> None:
    rows = {3: Row(State.DEAD, held=key_digest(b"k")), 9: Row(State.TRYING, tries=2)}
    desk = Desk(policy(RetryTopics(["10 s"]), order="key", after_dead="hold"))
    starts = {ORDERS: Start(9, 10, 10), RETRIES: Start(0, 0, 0)}
    desk.tell(Assigned(starts, {ORDERS: rows}, {ORDERS: Row(State.OPEN, position=9)}))
    desk.tell(arrivals(ORDERS, [9]))
    desk.advance(2000)
    assert [put.goal for put in desk.puts] == [Goal.PARK]


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


# --- while a transaction is under way ---------------------------------------------------------------------------------


def test_records_are_handled_while_a_transaction_is_under_way() -> None:
    tell = opened(Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0), ORDERS)
    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 1.0)
    (first,) = tell(RunEnded(ORDERS, run.number), 1.0)
    (run,) = tell(arrivals(ORDERS, [1, 2]), 2.0)
    tell(Finished(ORDERS, run.number, 1, Outcome(BAD)), 3.0)
    tell(Finished(ORDERS, run.number, 2, Outcome()), 3.0)
    assert tell(RunEnded(ORDERS, run.number), 3.0) == []  # one transaction at a time
    (second,) = tell(TransactionEnded(first.number), 4.0)
    assert [(put.message.offset, each.offsets[ORDERS]) for each in (first, second) for put in each.puts] == [
        (0, 1),
        (1, 3),
    ]


def test_of_a_partition_nothing_is_moved_while_a_plain_commit_of_it_is_under_way_and_all_else_goes_on() -> None:
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    opened(session, ORDERS)

    def tell(event: Event, ms: float) -> list[Action]:
        return session.on(event, Moment(1_000_000 + int(ms), ms))

    (run,) = tell(arrivals(ORDERS, [0]), 2000.0)
    (commit,) = [*tell(Finished(ORDERS, run.number, 0, Outcome()), 2001.0), *tell(RunEnded(ORDERS, run.number), 2001.0)]
    assert commit.offsets == {ORDERS: 1}
    (run,) = tell(arrivals(ORDERS, [1, 2]), 2002.0)
    tell(Finished(ORDERS, run.number, 1, Outcome(BAD)), 2003.0)
    tell(Finished(ORDERS, run.number, 2, Outcome()), 2003.0)
    assert tell(RunEnded(ORDERS, run.number), 2003.0) == []
    (run,) = tell(arrivals(ORDERS, [3]), 2004.0)
    assert tell(CommitEnded(commit.number), 2005.0) == []  # it waits for more now
    (transact,) = tell(Tick(), 2060.0)
    assert (transact.offsets, [put.message.offset for put in transact.puts]) == ({ORDERS: 3}, [1])
    tell(Finished(ORDERS, run.number, 3, Outcome()), 2061.0)
    assert tell(RunEnded(ORDERS, run.number), 4000.0) == []  # not beside the transaction
    (commit,) = tell(TransactionEnded(transact.number), 4001.0)
    assert commit.offsets == {ORDERS: 4}
    assert tell(CommitEnded(commit.number, failed=True), 4002.0) == []
    (again,) = tell(Tick(), 5100.0)
    assert (again.offsets, again.number > commit.number) == ({ORDERS: 4}, True)


def successes(tell: Callable[[Event, float], list[Action]], run: Run, ms: float) -> list[Action]:
    """What comes of a run whose records all succeed."""
    events = [Finished(run.partition, run.number, message.offset, Outcome()) for message in run.messages]
    return [action for event in (*events, RunEnded(run.partition, run.number)) for action in tell(event, ms)]


def test_a_commit_that_fails_is_not_repeated_at_once_however_many_records_wait_for_it() -> None:
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    opened(session, ORDERS)

    def tell(event: Event, ms: float) -> list[Action]:
        return session.on(event, Moment(1_000_000 + int(ms), ms))

    found, commits = tell(arrivals(ORDERS, range(2 * COMMIT_COUNT)), 0.0), []
    while runs := [action for action in found if isinstance(action, Run)]:
        found = successes(tell, runs[0], 1.0)
        commits += [action for action in found if isinstance(action, Commit)]
    (commit,) = commits
    assert tell(CommitEnded(commit.number, failed=True), 5.0) == []
    wake = session.wake_at
    assert wake is not None
    assert wake >= 5.0 + AGAIN_MS
    (again,) = tell(Tick(), wake)
    assert again.offsets == {ORDERS: 2 * COMMIT_COUNT}


def test_no_plain_commit_comes_before_the_transaction_that_opens_its_partition() -> None:
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)

    def tell(event: Event, ms: float) -> list[Action]:
        return session.on(event, Moment(1_000_000 + int(ms), ms))

    (transact,) = tell(Assigned({ORDERS: Start(0, 0, 0)}, {}, {}), 0.0)
    assert tell(TransactionEnded(transact.number, failed=True), 1.0) == []
    assert tell(Fetched(ORDERS, (), 5), 2.0) == []  # markers of transactions stood there
    (again,) = tell(Tick(), 1.0 + AGAIN_MS)
    assert again.offsets == {ORDERS: 5}


def test_a_partition_with_few_records_is_committed_in_time_beside_one_with_many() -> None:
    few = TopicPartition("orders", 1)
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    opened(session, ORDERS, few)
    committed: dict[TopicPartition, int] = {}

    def tell(event: Event, ms: float) -> list[Action]:
        actions = session.on(event, Moment(1_000_000 + int(ms), ms))
        for action in actions:
            if isinstance(action, Commit):
                committed.update(action.offsets)
                actions += tell(CommitEnded(action.number), ms)
        return actions

    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    successes(tell, run, 0.0)  # the time begins
    (run,) = tell(arrivals(few, [0]), 1.0)
    successes(tell, run, 1.0)
    assert few not in committed
    for beat in range(1, 12):
        first = 1 + (beat - 1) * COMMIT_COUNT
        found = tell(arrivals(ORDERS, range(first, first + COMMIT_COUNT)), beat * 100.0)
        while runs := [action for action in found if isinstance(action, Run)]:
            found = successes(tell, runs[0], beat * 100.0)
    assert committed == {ORDERS: 1 + 11 * COMMIT_COUNT, few: 1}


def test_what_is_in_hand_while_a_transaction_is_under_way_is_no_more_than_is_looked_at_after_a_death() -> None:
    tell = opened(Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0), ORDERS)
    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 1.0)
    (transact,) = tell(RunEnded(ORDERS, run.number), 1.0)
    found = tell(arrivals(ORDERS, range(1, CAREFUL_COUNT + RUN_MAX)), 2.0)
    reached = 0
    while runs := [action for action in found if isinstance(action, Run)]:
        (run,) = runs
        reached = run.messages[-1].offset + 1
        for message in run.messages:
            tell(Finished(ORDERS, run.number, message.offset, Outcome()), 3.0)
        found = tell(RunEnded(ORDERS, run.number), 3.0)
    assert CAREFUL_COUNT - RUN_MAX <= reached <= CAREFUL_COUNT
    (run,) = tell(TransactionEnded(transact.number), 4.0)
    assert run.messages[0].offset == reached


def test_a_partition_that_was_lost_and_came_again_has_nothing_to_do_with_what_was_written_before() -> None:
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    tell = opened(session, ORDERS)
    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 1.0)
    (late,) = tell(RunEnded(ORDERS, run.number), 1.0)
    assert tell(Lost([ORDERS]), 2.0) == []
    assert tell(Assigned({ORDERS: Start(0, 0, 0)}, {}, {}), 3.0) == []
    (opening,) = tell(TransactionEnded(late.number), 4.0)  # which was refused, or the position would be another
    assert (opening.offsets, [row.state for _, row in opening.rows]) == ({ORDERS: 0}, [State.OPEN])
    tell(TransactionEnded(opening.number), 5.0)
    (run,) = tell(arrivals(ORDERS, [0]), 6.0)
    assert [message.offset for message in run.messages] == [0]


@pytest.mark.parametrize("failed", [False, True])
def test_what_is_done_is_written_behind_the_transaction_under_way_before_a_partition_goes(failed: bool) -> None:
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    tell = opened(session, ORDERS)
    (run,) = tell(arrivals(ORDERS, [0]), 0.0)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 1.0)
    (first,) = tell(RunEnded(ORDERS, run.number), 1.0)
    (run,) = tell(arrivals(ORDERS, [1]), 2.0)
    tell(Finished(ORDERS, run.number, 1, Outcome(BAD)), 3.0)
    tell(RunEnded(ORDERS, run.number), 3.0)
    assert tell(Revoking([ORDERS]), 4.0) == tell(Revoked([ORDERS]), 4.0) == []
    assert session.is_closing
    (last,) = tell(TransactionEnded(first.number, failed=failed), 5.0)
    assert [put.message.offset for put in last.puts] == ([0, 1] if failed else [1])
    assert ("open/orders-0", None) in last.rows
    assert tell(TransactionEnded(last.number), 6.0) == []
    assert not session.is_closing


@pytest.mark.parametrize("failure", [AWAY, BAD], ids=["a probe", "a record after those that were there"])
def test_nothing_overtakes_a_record_whose_note_is_being_withdrawn(failure: Failure) -> None:
    """After an unclean end the first record is noted. When it is to be tried again, that is written first."""
    session = Session(policy(RetryHere(3, "10 ms")), member="m", nonce="n", draw=lambda: 0.0)
    opens = Row(State.OPEN, position=0)
    _, opening = session.on(Assigned({ORDERS: Start(0, 1, 1)}, {}, {ORDERS: opens}), Moment(0, 0.0))
    session.on(TransactionEnded(opening.number), Moment(1, 1.0))
    (noting,) = session.on(arrivals(ORDERS, [0, 1]), Moment(2, 2.0))
    (run,) = session.on(TransactionEnded(noting.number), Moment(3, 3.0))
    actions = session.on(Finished(ORDERS, run.number, 0, Outcome(failure)), Moment(4, 4.0))
    actions += session.on(RunEnded(ORDERS, run.number), Moment(4, 4.0))
    actions += session.on(Tick(), Moment(5000, 5000.0))
    assert [action for action in actions if isinstance(action, Run)] == []
    (clearing,) = [action for action in actions if isinstance(action, Transact)]
    actions = session.on(TransactionEnded(clearing.number), Moment(10_000, 10_000.0))
    assert [action.messages[0].offset for action in actions if isinstance(action, Run)] == [0]


@pytest.mark.parametrize("before", [None, Row(State.TRYING, tries=1)], ids=["new", "a suspect"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_record_that_was_not_handled_is_not_noted_when_its_partition_goes(before: Row | None, failed: bool) -> None:
    """Also if the note was being written when the partition was revoked, and that transaction fails."""
    session = Session(policy(RetryTopics(["10 s"])), member="m", nonce="n", draw=lambda: 0.0)
    rows = {} if before is None else {0: before}
    opens = Row(State.OPEN, position=0)
    _, opening = session.on(Assigned({ORDERS: Start(0, 1, 1)}, {ORDERS: rows}, {ORDERS: opens}), Moment(0, 0.0))
    session.on(TransactionEnded(opening.number), Moment(1, 1.0))
    (noting,) = session.on(arrivals(ORDERS, [0]), Moment(2, 2.0))
    ((_, note),) = noting.rows
    assert note.tries == (1 if before is None else 2)
    assert session.on(Revoking([ORDERS]), Moment(3, 3.0)) == session.on(Revoked([ORDERS]), Moment(3, 3.0)) == []
    (last,) = session.on(TransactionEnded(noting.number, failed=failed), Moment(4, 4.0))
    assert last.rows == (("orders-0-0", before), ("open/orders-0", None))
    assert session.on(TransactionEnded(last.number), Moment(5, 5.0)) == []
    assert not session.is_closing


def test_letters_that_came_while_the_ledger_was_read_are_new() -> None:
    """What is sent back just then has its row behind what was read, and its letter before the partition's end."""
    desk = keyed("continue", RetryTopics(["10 s"]), {3: waits(3)})
    assert desk.handled == [0]
    late = Desk(policy(RetryTopics(["10 s"]), order="key"))
    late.tell(Assigned({ORDERS: Start(9, 9, 9), RETRIES: Start(0, 0, 1)}, {}, {}))
    letter = Letter("id-4", "billing", ORDERS, 4, rounds=1)
    late.tell(Fetched(RETRIES, [Arrival(Message(*RETRIES, 0, 0, b"k", b""), letter)], 1))
    assert late.handled == [0]


def test_with_order_by_key_other_keys_go_on_in_the_same_run_behind_one_that_has_failed() -> None:
    session = Session(policy(RetryTopics(["10 s"]), order="key"), member="m", nonce="n", draw=lambda: 0.0)
    tell = opened(session, ORDERS, RETRIES)
    (run,) = tell(arrivals(ORDERS, [0, 1]), 0.0)
    assert (run.by_key, run.failures_max) == (True, RUN_MAX)
    tell(Finished(ORDERS, run.number, 0, Outcome(BAD)), 1.0)
    found = tell(RunEnded(ORDERS, run.number), 1.0)  # the second was not handled: it has the same key
    (transact,) = [action for action in found if isinstance(action, Transact)]
    assert [(put.goal, put.message.offset) for put in transact.puts] == [(Goal.RETRY, 0), (Goal.PARK, 1)]


def test_without_transactions_a_record_is_taken_again_whose_letter_is_not_there() -> None:
    """Whoever was replaced while it wrote may have written the row when its letter had been stepped over."""
    desk = Desk(policy(RetryTopics(["10 s"]), moves="at least once"), nonce="")
    topic = "retry.billing.orders.10s"
    rows = {4: Row(State.RETRYING, "id-4", topic, 0, 1), 5: Row(State.RETRYING, "id-5", topic, 0, 1)}
    retries = TopicPartition(topic, 0)
    desk.tell(Assigned({ORDERS: Start(4, 4, 4), retries: Start(0, 1, 1)}, {ORDERS: rows}, {}))
    letter = Letter("id-5", "billing", ORDERS, 5, 1, due=10**9)
    desk.tell(Fetched(retries, [Arrival(Message(*retries, 0, 0, b"k", b""), letter)], 1))
    desk.fetch([4, 5])
    assert desk.handled == [4]
    assert desk.kinds == []


def test_records_that_are_only_noted_make_no_room_for_more() -> None:
    """Otherwise a batch would resume the partition, and pause it again before its fetch has come back."""
    handled_at_resume = []

    class Watching(Desk):
        def carry_out(self, action: Action) -> list[Event]:
            if isinstance(action, Resume):
                handled_at_resume.append(len(self.handled))
            return super().carry_out(action)

    desk = Watching(policy(RetryTopics(["10 s"])))
    count = desk.policy.ahead_max
    opened = {ORDERS: Row(State.OPEN, member="other", position=0)}
    desk.tell(Assigned({ORDERS: Start(0, 0, 10 * count)}, {ORDERS: {}}, opened))
    desk.fetch(range(count))
    assert max(desk.noted) == 256
    assert len(handled_at_resume) == 1
    assert handled_at_resume[0] >= count // 2
