"""The Spark sink's exactly once, without Spark: attempts and drivers that die, or do not know that they are dead."""

import contextlib
import json
import random
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.spark.sink import exactly_once, markers
from kafkalite.spark.sink.exactly_once import TaskOutcome, abort, commit, prepare
from kafkalite.spark.sink.markers import Marker, Markers, RowTally
from kafkalite.spark.sink.options import SinkOptions
from kafkalite.spark.sink.writing import SinkError, WriteTask
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration


class Job:
    """A query that writes to one topic. Batch b has the numbers from 100 b on; its tasks share them out."""

    def __init__(self, broker: Broker, topic: str, **options: str) -> None:
        named = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery": "exactly-once"}
        self.options = SinkOptions.parse(named | options, {"value": "binary"}, streaming=True)
        self.topic = topic
        self.query = str(uuid.uuid4())
        self.client = Client(broker.bootstrap_servers)

    def rows(self, batch: int, number: int, tasks: int) -> list[int]:
        return list(range(100 * batch, 100 * batch + 100))[number::tasks]

    def prepare(self, batch: int, number: int, tasks: int, rows: list[int] | None = None) -> TaskOutcome:
        """What one attempt of a task does; a new worker each time, which remembers nothing."""
        markers._kept.__dict__.clear()
        rows = self.rows(batch, number, tasks) if rows is None else rows
        halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        batches = (pa.record_batch({"value": pa.array([b"%d" % row for row in half], pa.binary())}) for half in halves)
        return prepare(self.options, WriteTask(number, batch, self.query), batches)

    def run(self, batch: int, tasks: int = 3) -> None:
        """A batch that nothing happens to."""
        commit(self.options, [self.prepare(batch, number, tasks) for number in range(tasks)])

    def committed(self) -> list[int]:
        """What readers of committed data see, all transactions having ended."""
        end = self.client.end_offset(self.topic, 0)
        chunks = self.client.read(self.topic, 0, end=end, isolation=1)
        return sorted(int(record.value or b"") for chunk in chunks for record in chunk.columns.records())

    def markers(self) -> dict[int, Marker]:
        return Markers(self.client, "elsewhere", self.query).load(60)


@pytest.fixture
def job(kafka_broker: Broker, kafka_topic: str) -> Iterator[Job]:
    made = Job(kafka_broker, kafka_topic)
    yield made
    made.client.close()


def numbers(batches: int) -> list[int]:
    return list(range(100 * batches))


def test_batches_one_after_the_other(job: Job) -> None:
    for batch in range(4):
        job.run(batch, tasks=batch + 1)
    assert job.committed() == numbers(4)
    found = {task: (marker.batch, marker.tasks, marker.rows) for task, marker in job.markers().items()}
    assert found == dict.fromkeys(range(4), (3, 4, 25))


def test_nothing_is_seen_before_the_driver_commits(job: Job) -> None:
    outcomes = [job.prepare(0, number, 2) for number in range(2)]
    reader = job.client.read(job.topic, 0, isolation=1)
    assert list(reader) == [], "every record stands behind an open transaction"
    commit(job.options, outcomes)
    assert job.committed() == numbers(1)


def test_a_committed_batch_done_again_writes_nothing(job: Job) -> None:
    job.run(0)
    job.run(1)
    again = [job.prepare(1, number, 3) for number in range(3)]
    assert all(outcome.committed and outcome.prepared is None for outcome in again)
    commit(job.options, again)
    assert job.committed() == numbers(2)
    job.run(2)
    assert job.committed() == numbers(3)


@pytest.mark.parametrize("survivors", [0, 1, 2, 3])
def test_a_driver_dies_between_two_commits(job: Job, survivors: int) -> None:
    job.run(0)
    outcomes = [job.prepare(1, number, 3) for number in range(3)]
    for outcome in outcomes[:survivors]:
        exactly_once.commit_one(job.client, Markers(job.client, "", job.query), outcome, 3)
    job.run(1)
    assert job.committed() == numbers(2)


def test_a_driver_dies_between_the_marker_and_the_commit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker topic has an open transaction then, behind which tasks could not see."""
    outcomes = [job.prepare(0, number, 3) for number in range(3)]
    for outcome in outcomes[1:]:
        producer = job.client.producer(transactional_id=outcome.prepared.transactional_id)
        producer.resume_transaction(outcome.prepared)
        named = (outcome.prepared.producer_id, outcome.prepared.epoch, outcome.prepared.second)
        marker = Marker(0, 3, outcome.rows, outcome.checksum, named)
        Markers(job.client, "", job.query).write(producer, outcome.task.number, marker)
        producer.flush()
        producer.close()
    monkeypatch.setattr(exactly_once, "MARKER_WAIT_S", 60 - job.options.transaction_timeout_s)
    job.run(0)
    assert job.committed() == numbers(1)


def test_an_earlier_attempt_cannot_commit(job: Job) -> None:
    elder = [job.prepare(0, number, 2) for number in range(2)]
    younger = [job.prepare(0, number, 2) for number in range(2)]
    with pytest.raises(SinkError, match="task 0 of batch 0: its transaction was ended by another attempt"):
        commit(job.options, elder)
    abort(job.options, elder)
    commit(job.options, younger)
    assert job.committed() == numbers(1)
    abort(job.options, younger)
    assert job.committed() == numbers(1), "what is committed cannot be aborted"


def test_an_earlier_attempt_that_still_writes_is_fenced(job: Job) -> None:
    """Like a paused worker that resumes, or a speculative attempt."""
    younger: list[TaskOutcome] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"0"] * 10)})
        younger.append(job.prepare(0, 0, 1))
        yield pa.record_batch({"value": pa.array([b"0"] * 10)})

    with pytest.raises(SinkError, match="task 0 of batch 0: its transaction was ended by another attempt"):
        prepare(job.options, WriteTask(0, 0, job.query), batches())
    commit(job.options, younger)
    assert job.committed() == numbers(1)


def test_rows_that_break_leave_nothing(job: Job) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"7"] * 10)})
        raise OSError("the JVM is gone")

    with pytest.raises(OSError, match="the JVM is gone"):
        prepare(job.options, WriteTask(0, 0, job.query), batches())
    assert job.committed() == []
    job.run(0)
    assert job.committed() == numbers(1)


def test_other_rows_are_noticed_and_nothing_is_doubled(job: Job) -> None:
    outcomes = [job.prepare(0, number, 2) for number in range(2)]
    exactly_once.commit_one(job.client, Markers(job.client, "", job.query), outcomes[0], 2)
    abort(job.options, outcomes)
    for other in ([*job.rows(0, 0, 2)[:-1], 99], job.rows(0, 0, 2)[:-1], []):
        with pytest.raises(SinkError, match=r"its \d+ rows differ from the 50 rows committed"):
            job.prepare(0, 0, 2, other)
    turned = job.prepare(0, 0, 2, job.rows(0, 0, 2)[::-1])
    assert turned.committed, "the order of rows means nothing"
    assert job.committed() == job.rows(0, 0, 2)


def test_another_number_of_tasks_is_noticed(job: Job) -> None:
    outcomes = [job.prepare(0, number, 3) for number in range(3)]
    exactly_once.commit_one(job.client, Markers(job.client, "", job.query), outcomes[2], 3)
    abort(job.options, outcomes)
    fewer = [job.prepare(0, number, 2) for number in range(2)]
    with pytest.raises(SinkError, match="batch 0 has 2 tasks, but had 3 when part of it was committed"):
        commit(job.options, fewer)
    abort(job.options, fewer)
    assert job.committed() == job.rows(0, 2, 3)


def test_where_nothing_was_committed_tasks_may_be_others(job: Job) -> None:
    job.run(0)
    for number in range(3):
        job.prepare(1, number, 3)
    job.run(1, tasks=4)
    assert job.committed() == numbers(2)


def test_batches_without_rows(job: Job) -> None:
    empty = [job.prepare(0, number, 2, []) for number in range(2)]
    assert [outcome.prepared for outcome in empty] == [None, None]
    commit(job.options, empty)
    assert job.markers() == {0: Marker(0, 2, 0, 0)}
    commit(job.options, [job.prepare(0, number, 2, []) for number in range(2)])
    with pytest.raises(SinkError, match="task 0 of batch 0: its 3 rows differ from the 0"):
        job.prepare(0, 0, 2, [1, 2, 3])
    job.run(1)
    assert job.committed() == list(range(100, 200))


def test_markers_that_are_gone_are_noticed(job: Job, kafka_broker: Broker) -> None:
    job.run(0)
    job.client.admin.delete_topic(f"kafkalite.spark.{job.query}")
    with pytest.raises(SinkError, match=r"task 0 of batch 1: the query's markers are missing.* failOnMarkerLoss=false"):
        job.prepare(1, 0, 1)
    careless = Job(kafka_broker, job.topic, failOnMarkerLoss="false")
    careless.query = job.query
    careless.run(1)
    careless.client.close()
    job.run(2)
    assert job.committed() == numbers(3)


def test_a_checkpoint_older_than_the_topic_is_noticed(job: Job) -> None:
    for batch in range(2):
        job.run(batch)
    with pytest.raises(SinkError, match=r"task 1 of batch 0: the query has already written batch 1"):
        job.prepare(0, 1, 3)


def test_a_transaction_that_took_too_long_is_said(kafka_broker: Broker, kafka_topic: str) -> None:
    job = Job(kafka_broker, kafka_topic, **{"kafka.transaction.timeout.ms": "1"})

    def late_batch() -> None:
        outcomes = [job.prepare(0, 0, 1)]
        # The marker that aborts it is a record as well.
        wait_until(lambda: job.client.end_offset(kafka_topic, 0, isolation=1) > 100, 120, "the transaction's end")
        commit(job.options, outcomes)

    with contextlib.closing(job.client):
        with pytest.raises(SinkError, match=r"took longer than 0\.001 s \(kafka\.transaction\.timeout\.ms\)"):
            late_batch()
        assert job.committed() == []


def test_what_cannot_be_written_is_one_sentence(job: Job) -> None:
    batch = pa.record_batch({"value": pa.array([bytes(2_000_000)])})
    with pytest.raises(SinkError, match=r"^task 4 of batch 0: ") as caught:
        prepare(job.options, WriteTask(4, 0, job.query), iter([batch]))
    assert caught.value.__suppress_context__


class Died(BaseException):
    """The process is gone: nothing that it would have done happens."""


class Mortal:
    """Processes that die right before or right after they send something, and send nothing from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        self.dead = False
        original = Connection.send

        def send(*given: object, **named: object) -> object:
            self._step()
            result = original(*given, **named)
            self._step()
            return result

        monkeypatch.setattr(Connection, "send", send)

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.dead = True
        if self.dead:
            raise Died

    def live(self, steps: int) -> None:
        """Die after `steps` steps; -1: never."""
        self._left, self.dead = steps, False


def test_dying_at_any_step_doubles_and_loses_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers and their workers die wherever they are, and the next ones do the last batch again."""
    seed = random.randrange(2**32)
    print("seed", seed)  # shown when it fails
    dice = random.Random(seed)
    mortal = Mortal(monkeypatch)
    batch = deaths = 0
    while batch < 6 or deaths < 12:
        mortal.live(dice.randrange(1, 160))
        try:
            job.run(batch)
            batch += 1
        except Died:
            deaths += 1
    mortal.live(-1)
    job.run(batch)
    assert job.committed() == numbers(batch + 1)


def test_the_checksum_knows_keys_values_and_nothing_of_order() -> None:
    def tally(keys: list[bytes | None] | None, values: list[bytes | None]) -> tuple[int, int]:
        found = RowTally()
        columns = {"value": pa.array(values, pa.binary())} | (
            {} if keys is None else {"key": pa.array(keys, pa.binary())}
        )
        found.add(pa.record_batch(columns))
        return found.rows, found.checksum

    assert tally([b"a", b"b"], [b"1", b"2"]) == tally([b"b", b"a"], [b"2", b"1"])
    assert tally([b"a", b"b"], [b"1", b"2"]) != tally([b"b", b"a"], [b"1", b"2"])
    assert tally(None, [b"1", b"2"]) != tally(None, [b"1", b"3"])
    assert tally(None, [None]) != tally(None, [b""])
    assert tally([None], [b"1"]) == tally(None, [b"1"])
    assert tally(None, [b"1"]) != tally(None, [b"1", b"1"])


def test_the_topic_of_markers_is_compacted(job: Job) -> None:
    job.run(0, tasks=1)
    name = f"kafkalite.spark.{job.query}"
    entries = {entry.name: entry.value for entry in job.client.admin.describe_topic_configs(name)}
    assert entries["cleanup.policy"] == "compact"
    (record,) = [record for chunk in job.client.read(name, 0, isolation=1) for record in chunk.columns.records()]
    assert json.loads(record.key or b"") == [0]
    assert set(json.loads(record.value or b"")) == {"batch", "tasks", "rows", "checksum", "producer"}
