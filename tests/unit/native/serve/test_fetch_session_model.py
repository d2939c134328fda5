"""A session's client against the broker, at random: what it has gathered is what a full fetch of the same shows.

The client keeps what any incremental client keeps: a position and the last known high watermark and log start of each
partition. Beside each of its fetches a full one of the same positions is made. Then: an error there is an error here;
records there are here, byte for byte, unless the size was limited; and what the client believes of each partition,
mostly from earlier answers, is what the full fetch says now.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from kafkalite.broker.log import segment_removal
from kafkalite.errors import ErrorCode
from tests.kit.harness import wire
from tests.kit.harness.fetch_harness import IDS_FROM, FetchHarness, Key, Wanted, fetch_frame, partitions_of
from tests.kit.harness.log_harness import make_batch

if TYPE_CHECKING:
    from kafkalite.broker.log.partition_log import PartitionLog

TOPICS = ("a", "b", "c")
PARTITIONS = 2
FULL, OPEN_EPOCH = (0, -1), 0
NO_LIMIT = 1 << 25
GONE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
EVENTS = ("append", "nothing", "trim", "delete", "recreate")


class Sessions(RuleBasedStateMachine):
    """One client with a session; topics and records come and go."""

    topics = st.sampled_from(TOPICS)
    partitions = st.integers(0, PARTITIONS - 1)

    @initialize(version=st.integers(7, 18))
    def start(self, version: int) -> None:
        self.version = version
        self.directory = Path(tempfile.mkdtemp(prefix="sessions"))
        self.harness = FetchHarness(self.directory / "data")
        for topic in TOPICS:
            self.harness.logs.create_topic(topic, PARTITIONS, {})
        self.clients = [self.harness.client(worker) for worker in range(2)]
        self.session, self.epoch = 0, OPEN_EPOCH
        self.positions: dict[Key, int] = {}
        """The client's current partitions and positions."""
        self.sent: dict[Key, int] = {}
        """The session's partitions and positions as the client knows them."""
        self.known: dict[Key, tuple[int, int]] = {}
        """High watermark and log start as last told."""

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.close()
            shutil.rmtree(self.directory)

    # ---- the world ---------------------------------------------------------------------------------------------------
    def log_of(self, topic: str, partition: int) -> PartitionLog | None:
        found = self.harness.logs.topics.get(topic)
        return found.partitions[partition] if found is not None and partition < len(found.partitions) else None

    @rule(topic=topics, partition=partitions, count=st.integers(1, 3))
    def append(self, topic: str, partition: int, count: int = 1) -> None:
        log = self.log_of(topic, partition)
        if log is not None:
            log.append(make_batch(count, value_size=count * 7))

    @rule(topic=topics, partition=partitions)
    def trim(self, topic: str, partition: int) -> None:
        log = self.log_of(topic, partition)
        if log is not None:
            segment_removal.delete_records(log, (log.log_start_offset + log.high_watermark + 1) // 2)

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        if topic in self.harness.logs.topics:
            self.harness.logs.delete_topic(topic)

    @rule(topic=topics, partitions=st.integers(1, PARTITIONS))
    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        if topic not in self.harness.logs.topics:
            self.harness.logs.create_topic(topic, partitions, {})

    def happen(self, event: str, topic: str) -> None:
        if event == "append":
            self.append(topic, 0)
        elif event == "trim":
            self.trim(topic, 0)
        elif event in ("delete", "recreate"):
            self.delete(topic)
            if event == "recreate":
                self.create(topic)

    # ---- the client --------------------------------------------------------------------------------------------------
    @rule(times=st.integers(1, 3))
    def poll(self, times: int) -> None:
        """Fetch without changes, as a client mostly does."""
        for _ in range(times):
            self.fetch(0, NO_LIMIT, 0, "nothing", "a")

    @rule(topic=topics, partition=partitions, happens=st.sampled_from(["append", "trim", "seek"]))
    def poll_and_see(self, topic: str, partition: int, happens: str) -> None:
        """Read a partition to its end, apply an event, and check the client's next response."""
        self.append(topic, partition, 2)
        self.want(topic, partition, 0)
        self.poll(2)
        if happens == "append":
            self.append(topic, partition)
        elif happens == "trim":
            self.trim(topic, partition)
        else:
            self.want(topic, partition, 1 << 40)
        self.poll(2)

    @rule(topic=topics, partition=partitions, offset=st.integers(0, 3))
    def want(self, topic: str, partition: int, offset: int) -> None:
        """Begins to read a partition, or seeks in one."""
        if self.version < IDS_FROM:
            self.positions[topic, partition] = offset
        elif topic in self.harness.logs.topics:
            self.positions[self.harness.key(self.version, topic, partition)] = offset

    @rule(topic=topics, partition=partitions)
    def leave(self, topic: str, partition: int) -> None:
        """Reads it no more; by id, all the incarnations that the client still knows."""
        names = {topic} if self.version < IDS_FROM else {key[0] for key in self.positions}
        for name in names:
            self.positions.pop((name, partition), None)

    @rule(
        worker=st.integers(0, 1),
        size_max=st.sampled_from([NO_LIMIT, 1, 150]),
        wait_ms=st.sampled_from([0, 1000]),
        event=st.sampled_from(EVENTS),
        topic=topics,
    )
    def fetch(self, worker: int, size_max: int, wait_ms: int, event: str, topic: str) -> None:
        """One fetch of the session; while it waits, something happens."""
        full = self.epoch == OPEN_EPOCH
        changed = [
            Wanted(key, offset) for key, offset in self.positions.items() if full or self.sent.get(key) != offset
        ]
        forget = [] if full else [key for key in self.sent if key not in self.positions]
        wanted = dict(self.positions)
        client = self.clients[worker]
        frame = fetch_frame(
            self.version, (self.session, self.epoch), changed, forget=forget, size_max=size_max, wait_ms=wait_ms
        )
        client.send(frame)
        self.harness.settle()
        if not client.is_answered():
            self.happen(event, topic)
            self.harness.settle()
        if not client.is_answered():
            self.harness.pass_time(2)
        answer = client.receive(self.version)
        assert answer.error_code == 0
        self.take(answer, wanted, full, size_max)

    def take(self, answer: Any, wanted: dict[Key, int], full: bool, size_max: int) -> None:
        truth = partitions_of(
            self.clients[0].fetch(self.version, FULL, *[Wanted(key, offset) for key, offset in wanted.items()])
        )
        found = partitions_of(answer)
        assert found.keys() <= wanted.keys()
        if full:
            assert found.keys() == wanted.keys()
            self.known.clear()
        for key, part in found.items():
            self.known[key] = (part.high_watermark, part.log_start_offset)
            self.compare(key, part, truth[key], wanted[key])
        for key, expected in truth.items():
            if expected.error_code:
                assert found[key].error_code, f"{key} failed without a word"
            elif expected.records and size_max == NO_LIMIT:
                assert found[key].records, f"{key} has records that were not sent"
            if not expected.error_code:
                told = (expected.high_watermark, expected.log_start_offset)
                assert self.known[key] == (told if self.version >= 5 else told[:1])
        if size_max != NO_LIMIT and not any(part.error_code for part in truth.values()):
            assert any(part.records for part in found.values()) == any(part.records for part in truth.values())
        self.move_on(answer, wanted)

    def compare(self, key: Key, part: Any, expected: Any, position: int) -> None:
        if part.error_code in GONE:
            assert expected.error_code in GONE
            return
        assert part.error_code == expected.error_code
        assert bytes(expected.records or b"").startswith(bytes(part.records or b""))
        if part.records:
            batches = wire.split_batches(bytes(part.records))
            assert batches[0].base_offset <= position < batches[0].next_offset, "the records asked for"
            self.positions[key] = batches[-1].next_offset
        elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            name, index = key
            topic = next((t for t in self.harness.logs.topics.values() if name in (t.name, t.id)), None)
            assert topic is not None
            self.positions[key] = topic.partitions[index].log_start_offset

    def move_on(self, answer: Any, wanted: dict[Key, int]) -> None:
        """The client's next request."""
        for key, part in partitions_of(answer).items():
            if part.error_code in GONE and self.version >= IDS_FROM:
                self.positions.pop(key, None)
        self.sent = wanted
        self.known = {key: told for key, told in self.known.items() if key in wanted}
        if answer.session_id == 0:
            assert not wanted, "a session that holds partitions was closed or declined"
            self.restart()
        else:
            self.epoch = 1 if self.epoch == OPEN_EPOCH else self.epoch + 1
            self.session = answer.session_id

    def restart(self) -> None:
        self.session, self.epoch = 0, OPEN_EPOCH
        self.sent, self.known = {}, {}

    @rule(off=st.sampled_from([-1, 1, 100]), close=st.booleans())
    def lose_count(self, off: int, close: bool) -> None:
        """Send a request with the wrong epoch: after the error the client continues or opens a new session."""
        if self.epoch == OPEN_EPOCH or self.epoch + off <= 0:
            return
        extra = [Wanted(("a", 0), 2)] if self.version < IDS_FROM else []
        answer = self.clients[0].fetch(self.version, (self.session, self.epoch + off), *extra)
        assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        if close:
            # A full fetch that names the old session closes it.
            self.epoch = OPEN_EPOCH

    @rule()
    def overtake(self) -> None:
        """A waiting fetch whose client has sent the next one already gets an error, and the next one has it all."""
        if self.session == 0 or self.epoch == OPEN_EPOCH or self.sent != self.positions:
            return
        first, second = self.clients
        first.send(fetch_frame(self.version, (self.session, self.epoch), wait_ms=60_000))
        self.harness.settle()
        if first.is_answered():
            answer = first.receive(self.version)
            assert answer.error_code == 0
            self.take(answer, dict(self.positions), False, NO_LIMIT)
            return
        self.epoch += 1
        answer = second.fetch(self.version, (self.session, self.epoch))
        self.harness.pass_time(61)
        late = first.receive(self.version)
        assert (late.error_code, late.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        assert answer.error_code == 0
        self.take(answer, dict(self.positions), False, NO_LIMIT)

    @rule(version=st.integers(7, 18))
    def upgrade(self, version: int) -> None:
        """The client changes its version, which it may do inside a session, or not."""
        if (version >= IDS_FROM) == (self.version >= IDS_FROM):
            self.version = version
        elif self.session and self.epoch > 0:
            answer = self.clients[0].fetch(version, (self.session, self.epoch))
            assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    @rule()
    def read_to_the_end(self) -> None:
        """Without limits, a client that keeps fetching has every record in a few rounds."""
        for _ in range(4):
            self.fetch(0, NO_LIMIT, 0, "nothing", "a")
        for (name, index), position in self.positions.items():
            for topic in self.harness.logs.topics.values():
                if name in (topic.name, topic.id) and index < len(topic.partitions):
                    assert position == topic.partitions[index].log_end_offset


@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_session_shows_what_full_fetches_show(count: int) -> None:
    run_state_machine_as_test(Sessions, settings=settings(max_examples=count, stateful_step_count=40, deadline=None))
