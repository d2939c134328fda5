"""A partition on several brokers without sockets, threads and time: logs and fetchers are real; the leaders' side and
the controllers are models of Kafka's behaviour.

    step()      one random event from the seed: records, a response, an election, a crash, late metadata
    settle()    no new events; all pending ones complete

A broker acts on the last metadata it received, which may be stale: a former leader keeps leading until it learns of the
election.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.broker.cluster.connection import ConnectionFailed
from kafkalite.broker.cluster.fetchers import Fetchers, OwnBroker
from kafkalite.broker.cluster.image import EMPTY
from kafkalite.broker.cluster.quorum import Address
from kafkalite.broker.log import segment_removal
from kafkalite.broker.log.assignment import Assignment
from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from kafkalite.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.kit.fakes.clock import FakeClock
from tests.kit.fakes.executors import FakeExecutors
from tests.kit.harness.log_harness import TOPIC_ID, make_batch, release
from tests.kit.harness.replica_harness import TRANSACTIONAL, ReplicaHarness

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest
    from kafkalite.wire.protocol.messages.list_offsets import ListOffsetsRequest

PIECE_SIZE = 600
"""Bytes of an answer, so that a log takes several."""


@dataclass
class Node:
    """A broker."""

    number: int
    harness: ReplicaHarness
    log: ReplicaLog
    fetchers: Fetchers
    executors: FakeExecutors
    news: list[Assignment] = field(default_factory=list)
    """The controllers' decisions that this broker has not received."""
    ends: dict[int, int] = field(default_factory=dict)
    """Where it knows the others' logs to end, as a leader."""
    sessions: dict[int, list[Any]] = field(default_factory=dict)
    """id → [epoch, the partition as it was asked for last, what was said of it last]"""


class Connection:
    """A connection to one broker; the world takes steps before each response."""

    closed = False

    def __init__(self, world: World, asker: int, address: Address) -> None:
        self.world, self.asker, self.address = world, asker, address

    def request(self, api_key: int, _version: int, message: Any, _timeout_s: float, *, views: bool) -> Any:
        world = self.world
        assert views
        number = self.address.port
        if world.draw.random() < world.faults:
            raise ConnectionFailed("it is far away")
        answer = world.fetch(number, message) if api_key == api.FETCH else world.list_offsets(number, message)
        while world.draw.random() < world.delays:
            world.step(without=self.asker)
        if world.draw.random() < world.faults:
            raise ConnectionFailed("the answer was lost")
        return answer

    def end_answer(self) -> None:
        """Nothing was kept for it."""

    def abort(self) -> None:
        self.closed = True

    close = abort


class Way:
    """To the others, for one of them."""

    def __init__(self, world: World, asker: int) -> None:
        self.world, self.asker = world, asker

    def address(self, node_id: int) -> Address | None:
        return Address("node", node_id)

    def connect(self, address: Address, _client_id: str, _timeout_s: float) -> Connection:
        return Connection(self.world, self.asker, address)


class World:
    """See the module. With `unclean` elections any live replica may lead, and records may be lost."""

    def __init__(self, directory: Path, seed: int, *, unclean: bool = False, count: int = 3) -> None:
        self.draw = random.Random(seed)
        self.unclean = unclean
        self.faults, self.delays = 0.05, 0.3
        self.clock = FakeClock()
        self.number = 0
        self.session_count = 0
        self.committed: dict[int, bytes] = {}
        """Base offset → batch of all that was below the high watermark of a leader."""
        self.told = Assignment(
            held=True,
            leads=False,
            leader_id=1,
            leader_epoch=0,
            replicas=tuple(range(1, count + 1)),
            isr=tuple(range(1, count + 1)),
            partition_epoch=0,
        )
        self.nodes: dict[int, Node] = {}
        self.busy: set[int] = set()  # fetchers in the middle of a turn
        for number in self.told.replicas:
            root = directory / str(number)
            root.mkdir()
            harness = ReplicaHarness(root, segment_bytes=3000, index_interval_bytes=200)
            self.nodes[number] = self._node(number, harness, harness.opened(clean=True))
            self.hear(self.nodes[number], self.told)

    def _node(self, number: int, harness: ReplicaHarness, log: ReplicaLog) -> Node:
        executors = FakeExecutors()
        config = BrokerConfig.load(None, {"replica.fetch.max.bytes": str(PIECE_SIZE)})
        own = OwnBroker(number, lambda: EMPTY)
        fetchers = Fetchers(own, Way(self, number), config, self.clock, executors)  # type: ignore[arg-type]
        return Node(number, harness, log, fetchers, executors)

    # --- the controllers ----------------------------------------------------------------------------------------------

    def decide(self, **changes: Any) -> None:
        """Something else holds from now on; everybody hears of it some time."""
        self.told = self.told._replace(partition_epoch=self.told.partition_epoch + 1, **changes)
        for node in self.nodes.values():
            node.news.append(self.told)

    def elect(self) -> None:
        leader = self.draw.choice(tuple(self.nodes) if self.unclean else self.told.isr)
        isr = (leader,) if leader not in self.told.isr else self.told.isr
        self.decide(leader_id=leader, leader_epoch=self.told.leader_epoch + 1, isr=isr)
        self.check_leader(leader)

    def check_leader(self, leader: int) -> None:
        """Assert that an elected in-sync replica has all committed batches."""
        if not self.unclean:
            has = batches_of(self.nodes[leader].log)
            missing = [base for base in self.committed if base >= self.start and has.get(base) != self.committed[base]]
            assert not missing, f"{leader} was elected, and lacks what was committed at {missing}"

    @property
    def start(self) -> int:
        return max(node.log.log_start_offset for node in self.nodes.values())

    def hear(self, node: Node, news: Assignment) -> None:
        """The broker goes by it from now on."""
        before = node.log.assignment
        now = news._replace(leads=news.leader_id == node.number)
        if now.leads:
            if before.leader_epoch != now.leader_epoch or not before.leads:
                node.ends = {}
            node.log.lead(now)
        else:
            node.log.resign(now)
        node.fetchers.use([ReplicaChange(node.log, before, now)])
        self.look(node)

    # --- a leader -----------------------------------------------------------------------------------------------------

    def look(self, node: Node) -> None:
        """Moves the high watermark of a leader, and notes what is committed by that."""
        log = node.log
        if not log.led:
            return
        others = [node.ends.get(number, -1) for number in log.assignment.isr if number != node.number]
        end = min([log.log_end_offset, *others])
        before = log.high_watermark
        if end > before and log.advance_high_watermark(end):
            for base, batch in batches_of(log).items():
                if before <= base < log.high_watermark:
                    assert self.unclean or self.committed.get(base, batch) == batch, (
                        "two records committed in one place"
                    )
                    self.committed[base] = batch

    def fetch(self, number: int, request: FetchRequest) -> FetchResponse:
        """Return a broker's response to a follower's request."""
        node = self.nodes[number]
        if request.session_epoch > 0:
            session = node.sessions.get(request.session_id)
            if session is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session[0] != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        else:
            node.sessions.pop(request.session_id, None)
            self.session_count += 1
            request.session_id = self.session_count
            session = node.sessions[request.session_id] = [0, None, None]
        session[0] += 1
        if request.forgotten_topics_data:
            session[1] = session[2] = None
        if request.topics:
            ((asked,),) = [topic.partitions for topic in request.topics]
            if session[1] is None or asked.current_leader_epoch != session[1].current_leader_epoch:
                session[2] = None
            session[1] = asked
        if session[1] is None:
            return FetchResponse(session_id=request.session_id)
        part = self._answer(node, request.replica_id, session[1])
        said = (part.high_watermark, part.log_start_offset)
        goes_well = not part.error_code and part.diverging_epoch.end_offset < 0
        if goes_well and said == session[2] and not part.records:
            return FetchResponse(session_id=request.session_id)
        session[2] = said if goes_well else None
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])
        return FetchResponse(session_id=request.session_id, responses=[topic])

    def _answer(self, node: Node, replica_id: int, asked: FetchPartition) -> PartitionData:
        log = node.log
        code = 0
        if not log.led:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.current_leader_epoch < log.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > log.leader_epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        if code:
            return PartitionData(error_code=code, high_watermark=-1, records=None)
        part = PartitionData(high_watermark=log.high_watermark, log_start_offset=log.log_start_offset)
        outside_front = asked.fetch_offset < log.log_start_offset
        outside = outside_front or asked.fetch_offset > log.log_end_offset
        if asked.last_fetched_epoch >= 0:
            epoch, end = log.epoch_end(asked.last_fetched_epoch)
            if epoch < 0:
                outside = True
            elif min(epoch - asked.last_fetched_epoch, end - asked.fetch_offset, 0) and not outside_front:
                part.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return part
        if outside:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return part
        part.records = memoryview(log.read(asked.fetch_offset, asked.partition_max_bytes))  # type: ignore[assignment]
        node.ends[replica_id] = asked.fetch_offset
        self.look(node)
        isr = log.assignment.isr
        start = log.epochs.entries[-1][1]
        if replica_id not in isr and asked.fetch_offset >= max(log.high_watermark, start) and self._may_change(node):
            self.decide(isr=(*isr, replica_id))
            self.hear(node, node.news.pop())
        return part

    def _may_change(self, node: Node) -> bool:
        """Whether a leader knows the newest that was decided, so that the controllers take what it proposes."""
        return not node.news and self.told.leader_id == node.number

    def list_offsets(self, number: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        log = self.nodes[number].log
        asked = request.topics[0].partitions[0]
        part = ListOffsetsPartitionResponse()
        if not log.led or asked.current_leader_epoch != log.leader_epoch:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            part.offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[part])])

    # --- what may happen ----------------------------------------------------------------------------------------------

    def step(self, without: int | None = None) -> None:
        """`without`: the one whose fetcher waits for an answer."""
        node = self.nodes[self.draw.choice(list(self.nodes))]
        what = self.draw.random()
        if what < 0.30:
            self.write(node)
        elif what < 0.72:
            self.turn(node)
        elif what < 0.82:
            if node.news:
                self.hear(node, node.news.pop(0))
        elif what < 0.86:
            self.elect()
        elif what < 0.89:
            self.shrink(node)
        elif what < 0.92:
            node.log.checkpoint()
            node.harness.write_points(node.log)
        elif what < 0.94:
            self.delete(node)
        elif node.number != without and node.number not in self.busy:
            self.die(node)

    def write(self, node: Node) -> None:
        """As many batches as it likes, if it takes itself for the leader."""
        if not node.log.led:
            return
        for _ in range(self.draw.randint(1, 4)):
            self.number += 1
            value = b"%d of %d " % (self.number, node.number) + bytes(self.draw.randrange(150))
            kind = self.draw.random()
            producer = self.draw.randrange(3)
            try:
                if kind < 0.2:
                    node.log.append_marker(producer, 0, 0, commit=kind < 0.1)
                elif kind < 0.4:
                    batch = make_batch(value=value, producer_id=producer, epoch=0, attributes=TRANSACTIONAL)
                    node.log.append_internal(batch)
                else:
                    node.log.append(make_batch(self.draw.randint(1, 3), value=value))
            except KafkaError as error:
                raise AssertionError(f"{node.number} takes no records") from error
        self.look(node)

    def turn(self, node: Node) -> None:
        """Its fetchers ask once, those that do not wait for an answer."""
        if node.number in self.busy:
            return
        self.busy.add(node.number)
        self.clock.advance(self.draw.random() * 2)
        try:
            for name in list(node.executors.workers):
                node.executors.turn(name)
        finally:
            self.busy.discard(node.number)
        log = self.nodes[node.number].log
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        if not self.unclean:
            for base, batch in batches_of(log).items():
                if base < log.high_watermark:
                    assert self.committed.get(base) == batch, "a follower shows what was never committed"

    def shrink(self, node: Node) -> None:
        """A leader has one less in sync."""
        isr = node.log.assignment.isr
        if node.log.led and len(isr) > 1 and self._may_change(node):
            gone = self.draw.choice([number for number in isr if number != node.number])
            self.decide(isr=tuple(number for number in isr if number != gone))
            self.hear(node, node.news.pop())

    def delete(self, node: Node) -> None:
        """Records go at the front."""
        if node.log.led and self.draw.random() < 0.5:
            segment_removal.delete_records(
                node.log, self.draw.randint(node.log.log_start_offset, node.log.high_watermark)
            )

    def die(self, node: Node) -> None:
        """It is killed, may lose what was not flushed, is out of sync, and starts again."""
        isr = tuple(number for number in self.told.isr if number != node.number)
        if not isr and not self.unclean:
            return
        active = node.log.active
        low, high = active.flushed_size, active.size
        release(node.log)
        if high > low and self.draw.random() < 0.5:
            os.truncate(active.path, self.draw.randint(low, high))
        leader, epoch = self.told.leader_id, self.told.leader_epoch
        if leader == node.number:
            leader, epoch = self.draw.choice(isr or tuple(self.nodes)), epoch + 1
        self.decide(isr=isr or (leader,), leader_id=leader, leader_epoch=epoch)
        if leader != node.number:
            self.check_leader(leader)
        node.fetchers.stop()
        again = self._node(node.number, node.harness, node.harness.opened(clean=False))
        for other in self.nodes.values():
            other.ends.pop(node.number, None)
        self.nodes[node.number] = again
        self.hear(again, self.told)  # a start takes in all there is

    def settle(self) -> None:
        """All hear of all, and follow until they have what the leader has."""
        self.faults = self.delays = 0.0
        for node in self.nodes.values():
            while node.news:
                self.hear(node, node.news.pop(0))
        leader = self.nodes[self.told.leader_id].log
        for _ in range(3000):
            logs = [node.log for node in self.nodes.values()]
            wanted = (leader.log_end_offset, leader.log_end_offset, with_batches(leader, self.start))
            if all((log.log_end_offset, log.high_watermark, with_batches(log, self.start)) == wanted for log in logs):
                return
            for node in self.nodes.values():
                self.turn(node)
                while node.news:
                    self.hear(node, node.news.pop(0))
        raise AssertionError(f"they never agree: {[(log, log.high_watermark) for log in logs]}")

    def check(self) -> None:
        """All have the same."""
        logs = [node.log for node in self.nodes.values()]
        start = self.start
        for log in logs:
            assert from_offset(log, start) == from_offset(logs[0], start)
            assert with_batches(log, start) == with_batches(logs[0], start)
            if start == 0:
                assert log.ensure_producers().open_transactions() == logs[0].ensure_producers().open_transactions()
        self.check_leader(self.told.leader_id)

    def close(self) -> None:
        for node in self.nodes.values():
            node.fetchers.stop()
            release(node.log)


def batches_of(log: ReplicaLog) -> dict[int, bytes]:
    """Base offset → batch of all that can be read."""
    found: dict[int, bytes] = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = whole(log, at)
        while data:
            size = int.from_bytes(data[8:12], "big") + 12
            base, delta = int.from_bytes(data[:8], "big"), int.from_bytes(data[23:27], "big")
            found[base], data = data[:size], data[size:]
            at = base + delta + 1
    return found


def whole(log: ReplicaLog, offset: int) -> bytes:
    """As ReplicaLog.read, of one that may be led elsewhere."""
    led, leader_id = log.core.led, log.core.leader_id
    log.core.set_led(True, leader_id)
    try:
        return log.read(offset, 1 << 20)
    finally:
        log.core.set_led(led, leader_id)


def from_offset(log: ReplicaLog, start: int) -> dict[int, bytes]:
    return {base: batch for base, batch in batches_of(log).items() if base >= start}


def with_batches(log: ReplicaLog, start: int) -> list[tuple[int, int]]:
    """The epochs of batches from `start` on."""
    if start >= log.log_end_offset:
        return []
    entries = [(epoch, max(first, start)) for epoch, first in log.epochs.entries if first < log.log_end_offset]
    return [entry for i, entry in enumerate(entries) if i + 1 == len(entries) or entries[i + 1][1] > start]
