"""The rest of a cluster, for a broker that is recorded or judged: its controllers, and broker 8, in one scripted node.

Broker 8 leads by Kafka's rules (fetches of replicas, divergence, offsets out of range) and follows what the other one
leads. Leaders change, also to one that has lost its tail; topics are deleted and made again. All of it is in
`events`, each with the moment of the trace before which it happened.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import list_offsets
from kafkalite.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kafkalite.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tests.kit.fakes.controller import TOPIC_ID, ScriptedController, Stored
from tests.kit.harness.replica_harness import Batches
from tests.kit.harness.typed import TypedConnection
from tests.power.replicas.state import OWN, PEER, UNDEFINED, Event, Key, Part, State, split

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER: Final = "aaaaaaaaaaaaaaaaaaaaaQ"
METADATA_VERSION: Final = 27
PIECE_SIZE: Final = 4000
"""Bytes of a partition in an answer, so that a log takes several."""
WAIT_S: Final = 0.02
LATEST: Final = -1
NOBODY: Final = -1
PEER_EPOCH: Final = 1


def records_of(*parts: tuple[Key, Part]) -> list[object]:
    """Of a new topic's partitions."""
    (topic_id, _), first = parts[0]
    found: list[object] = [types.TopicRecord(name=first.topic, topic_id=topic_id)]
    for (_, number), part in parts:
        found.append(
            types.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(part.replicas),
                isr=list(part.isr),
                leader=part.leader,
                leader_epoch=part.epoch,
                partition_epoch=part.version,
            )
        )
    return found


class Others(ScriptedController):
    """See the module. `moment` is the place of the trace's next record."""

    def __init__(self, seed: int, moment: Callable[[], int]) -> None:
        super().__init__(CLUSTER)
        self.draw = random.Random(f"others {seed}")
        self.moment = moment
        self.state = State()
        self.events: list[Event] = []
        self.places: list[int] = []
        """Of the batches of the metadata log, the moment before which each was there."""
        self.alive = False
        """Whether the recorded broker is there."""
        self.serves_replicas = True
        """Whether what broker 8 leads may be followed now."""
        self.sleeps = False
        """Whether broker 8 follows nothing now."""
        self.registrations: list[tuple[int, int, list[str]]] = []
        """(moment, broker epoch, directories' ids) of the recorded broker's."""
        self._batches = Batches(self.draw)
        self._topic_count = 0
        self._over = threading.Event()
        self._follower: threading.Thread | None = None

    # --- what happens -------------------------------------------------------------------------------------------------

    def append(self, *records: object) -> int:
        with self.change():
            self.places.append(self.moment())
            return super().append(*records)

    def note(self, kind: str, key: Key, what: Any, place: int = UNDEFINED) -> None:
        """It happens. The lock is held."""
        event = Event(self.moment() if place < 0 else place, kind, key, what)
        self.state.apply(event)
        self.events.append(event)
        self._changed.notify_all()

    def begin(self) -> None:
        """The cluster without topics, in which broker 8 is alive."""
        self.append(types.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION))
        self.append(self.peer_record())

    def peer_record(self) -> types.RegisterBrokerRecord:
        endpoint = types.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=self.port)
        return types.RegisterBrokerRecord(
            broker_id=PEER, broker_epoch=PEER_EPOCH, end_points=[endpoint], rack=None, fenced=False
        )

    def create(self, name: str, count: int, leader: int, replicas: tuple[int, ...] = (PEER, OWN)) -> None:
        """A topic, led by one of them in epoch 0, with all replicas in sync."""
        with self.change():
            self._topic_count += 1
            topic_id = self._topic_count.to_bytes(2, "big") * 8
            part = Part(name, replicas, leader, 0, 0, replicas)
            self.append(*records_of(*(((topic_id, number), part) for number in range(count))))
            for number in range(count):
                key = (topic_id, number)
                self.note("part", key, part, self.places[-1])
                if leader == PEER:
                    self.note("lead", key, 0, self.places[-1])

    def delete(self, name: str) -> None:
        with self.change():
            gone = [key for key, part in self.state.parts.items() if part.topic == name]
            self.append(types.RemoveTopicRecord(topic_id=gone[0][0]))
            for key in gone:
                self.note("gone", key, None, self.places[-1])

    def elect(self, key: Key, leader: int, isr: tuple[int, ...], *, lost: int | None = None) -> None:
        """Somebody leads from now on, in a new epoch; broker 8 may have lost what it had from an offset on."""
        with self.change():
            part = self.state.parts[key]
            self.append(types.PartitionChangeRecord(topic_id=key[0], partition_id=key[1], leader=leader, isr=list(isr)))
            place = self.places[-1]
            self.note(
                "part",
                key,
                part._replace(leader=leader, epoch=part.epoch + 1, version=part.version + 1, isr=isr),
                place,
            )
            if leader == PEER:
                if lost is not None:
                    self.note("cut", key, lost, place)
                self.note("lead", key, part.epoch + 1, place)
                self._advance(key)

    def set_isr(self, key: Key, isr: tuple[int, ...]) -> None:
        with self.change():
            part = self.state.parts[key]
            self.append(types.PartitionChangeRecord(topic_id=key[0], partition_id=key[1], isr=list(isr)))
            self.note("part", key, part._replace(version=part.version + 1, isr=isr), self.places[-1])
            if part.leader == PEER:
                self._advance(key)

    def alter_partition(self, request: Any) -> AlterPartitionResponse:
        """The recorded broker proposes who is in sync."""
        answered = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                code = self._why_not(key, row)
                if not code:
                    self.set_isr(key, tuple(each.broker_id for each in row.new_isr_with_epochs))
                part = self.state.parts.get(key)
                rows.append(
                    AlterPartitionResponsePartitionData(partition_index=row.partition_index, error_code=code)
                    if code or part is None
                    else AlterPartitionResponsePartitionData(
                        partition_index=row.partition_index,
                        leader_id=part.leader,
                        leader_epoch=part.epoch,
                        isr=list(part.isr),
                        partition_epoch=part.version,
                    )
                )
            answered.append(AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=rows))
        return AlterPartitionResponse(topics=answered)

    def _why_not(self, key: Key, row: Any) -> int:
        part = self.state.parts.get(key)
        if part is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if part.leader != OWN or row.leader_epoch != part.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_UPDATE_VERSION if row.partition_epoch != part.version else 0

    def leave(self) -> None:
        """The recorded broker is about to shut down, or is dead: no request waits for it, and the partitions that only
        it could lead have no leader until it is back.
        """
        with self.change():
            self.alive = False
            for key, part in list(self.state.parts.items()):
                if part.leader == OWN and PEER in part.isr:
                    self.elect(key, PEER, (PEER,))
                elif part.leader == OWN:
                    self.elect(key, NOBODY, part.isr)
                elif part.leader == PEER and OWN in part.isr:
                    self.set_isr(key, (PEER,))

    def come_back(self) -> None:
        """The recorded broker is there: it leads what only it can."""
        with self.change():
            self.alive = True
            for key, part in list(self.state.parts.items()):
                if part.leader == NOBODY:
                    self.elect(key, OWN, part.isr)

    # --- one thing more, by the seed ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        with self.change():
            kind = self.draw.random()
            key = self.draw.choice(sorted(self.state.parts))
            part, line = self.state.parts[key], self.state.lines[key]
            if kind < (0.03 if self.sleeps else 0.01):
                self.sleeps = not self.sleeps
            elif kind < 0.05 and part.topic == "renewed":
                self.delete("renewed")
                self.create("renewed", 1, PEER)
            elif part.topic == "moving" and kind < 0.3:
                if part.leader == PEER and OWN in part.isr and self.alive:
                    self.elect(key, OWN, part.isr)
                elif part.leader == OWN and PEER in part.isr:
                    self.elect(key, PEER, part.isr)
            elif part.leader != PEER:
                return
            elif part.topic == "followed" and kind < 0.16:
                at = self.draw.choice([line.end, *(each.base for each in line.batches[-6:])])
                self.elect(key, PEER, part.isr, lost=max(at, line.start))
            elif part.topic == "followed" and kind < 0.2:
                self.note(
                    "front",
                    key,
                    self.draw.choice(
                        [
                            line.high,
                            line.start,
                            *(each.base for each in line.batches if line.start <= each.base <= line.high),
                        ]
                    ),
                )
            else:
                for _ in range(self.draw.randint(1, 3)):
                    data = self._batches.next(line.end, part.epoch)
                    self.note("append", key, data.hex())
                self._advance(key)

    def write_everywhere(self) -> None:
        """One batch more in all that broker 8 leads."""
        with self.change():
            for key, part in self.state.parts.items():
                if part.leader == PEER:
                    self.note("append", key, self._batches.next(self.state.lines[key].end, part.epoch).hex())
                    self._advance(key)

    def pause(self, seconds: float) -> None:
        """Lets some time go by."""
        self._over.wait(seconds)

    def _advance(self, key: Key) -> None:
        """The high watermark of what broker 8 leads."""
        part, line = self.state.parts[key], self.state.lines[key]
        epoch, end = line.told
        other = end if epoch == part.epoch else line.start
        high = min(line.end, other) if OWN in part.isr else line.end
        if high > line.high:
            self.note("high", key, high)

    # --- broker 8 as a leader -----------------------------------------------------------------------------------------

    def _answer(self, key: int, version: int, request: Any) -> Any:
        if key == api.FETCH and (not request.topics or request.topics[0].topic_id != TOPIC_ID):
            with self.change():
                return self._give(request)
        if key == api.LIST_OFFSETS:
            with self.change():
                return self._tell_offsets(request)
        return super()._answer(key, version, request)

    def _give(self, request: FetchRequest) -> FetchResponse:
        rows = {
            (topic.topic_id, asked.partition): self._piece((topic.topic_id, asked.partition), asked)
            for topic in request.topics
            for asked in topic.partitions
        }
        if not any(row.records or row.error_code or row.diverging_epoch.epoch >= 0 for row in rows.values()):
            self._changed.wait(WAIT_S)
            for topic in request.topics:
                for asked in topic.partitions:
                    key = (topic.topic_id, asked.partition)
                    rows[key] = self._piece(key, asked)
        found: dict[bytes, list[PartitionData]] = {}
        for (topic_id, _), row in rows.items():
            found.setdefault(topic_id, []).append(row)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=topic_id, partitions=parts) for topic_id, parts in found.items()]
        )

    def _refuse(self, key: Key, epoch: int) -> int:
        """Return the error for a fetch of a partition in this epoch."""
        part = self.state.parts.get(key)
        if part is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if epoch != part.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < part.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return 0 if part.leader == PEER and self.serves_replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _piece(self, key: Key, asked: FetchPartition) -> PartitionData:
        row = PartitionData(partition_index=asked.partition, high_watermark=-1, records=None)
        row.error_code = self._refuse(key, asked.current_leader_epoch)
        if row.error_code:
            return row
        line, offset = self.state.lines[key], asked.fetch_offset
        row.high_watermark, row.log_start_offset = line.high, line.start
        if asked.last_fetched_epoch >= 0:
            epoch, end = line.end_of(asked.last_fetched_epoch)
            if epoch == UNDEFINED:
                row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return row
            if epoch < asked.last_fetched_epoch or end < offset:
                row.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return row
        if not line.start <= offset <= line.end:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return row
        if line.told != (asked.current_leader_epoch, offset):
            self.note("told", key, (asked.current_leader_epoch, offset))
            self._advance(key)
        part = self.state.parts[key]
        if offset >= line.end and OWN not in part.isr and self.alive:
            self.set_isr(key, (*part.isr, OWN))
        data = b""
        for batch in line.batches:
            if batch.behind > offset and (not data or len(data) + len(batch.data) <= PIECE_SIZE):
                data += batch.data
            elif data:
                break
        row.records = data
        row.high_watermark = line.high
        return row

    def _tell_offsets(self, request: Any) -> list_offsets.ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            ids = {part.topic: key[0] for key, part in self.state.parts.items()}
            rows = []
            for asked in topic.partitions:
                key = (ids.get(topic.name, b""), asked.partition_index)
                code = self._refuse(key, asked.current_leader_epoch)
                row = list_offsets.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
                if not code:
                    line = self.state.lines[key]
                    row.offset = line.end if asked.timestamp == LATEST else line.start
                rows.append(row)
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    # --- broker 8 as a follower ---------------------------------------------------------------------------------------

    def follow(self, port: Callable[[], int]) -> None:
        """Follows the recorded broker from now on, until `finish`."""
        self._follower = threading.Thread(target=self._follow, args=(port,), daemon=True)
        self._follower.start()

    def finish(self) -> None:
        """Follows no more."""
        self._over.set()
        if self._follower is not None:
            self._follower.join()

    def _follow(self, port: Callable[[], int]) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, EOFError):
                connection = TypedConnection(port())
                try:
                    while not self._over.is_set():
                        self._over.wait(0.003)
                        if self.alive and not self.sleeps:
                            self._ask(connection)
                finally:
                    connection.close()
            time.sleep(0.01)

    def _ask(self, connection: TypedConnection) -> None:
        with self.change():
            wanted = {
                key: (part.epoch, self.state.lines[key].end)
                for key, part in self.state.parts.items()
                if part.leader == OWN and PEER in part.replicas
            }
            topics: dict[bytes, list[FetchPartition]] = {}
            for key, (epoch, end) in wanted.items():
                line = self.state.lines[key]
                topics.setdefault(key[0], []).append(
                    FetchPartition(
                        partition=key[1],
                        current_leader_epoch=epoch,
                        fetch_offset=end,
                        last_fetched_epoch=line.last_epoch,
                        log_start_offset=line.start,
                        partition_max_bytes=PIECE_SIZE,
                    )
                )
        if not topics:
            return
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=PEER, replica_epoch=PEER_EPOCH),
            max_wait_ms=10,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
        )
        answer = connection.ask(api.FETCH, 17, request)
        with self.change():
            for topic in answer.responses:
                for row in topic.partitions:
                    key = (topic.topic_id, row.partition_index)
                    part = self.state.parts.get(key)
                    if part is not None and part.leader == OWN and part.epoch == wanted[key][0]:
                        self._take(key, row)

    def _take(self, key: Key, row: PartitionData) -> None:
        """Does to the log here what the leader says."""
        line = self.state.lines[key]
        diverging = row.diverging_epoch
        if row.error_code:
            return
        if diverging.epoch >= 0 or diverging.end_offset >= 0:
            epoch, end = line.end_of(diverging.epoch)
            at = diverging.end_offset if epoch == UNDEFINED else min(end, diverging.end_offset)
            self.note("cut", key, at if epoch in (UNDEFINED, diverging.epoch) else end)
            return
        data = b"".join(each.data for each in split(bytes(row.records or b"")) if each.base >= line.end)
        if data:
            self.note("append", key, data.hex())
        if row.high_watermark > line.high:
            self.note("high", key, min(row.high_watermark, line.end))

    # --- kept and taken up again --------------------------------------------------------------------------------------

    def _register(self, request: Any) -> Any:
        answer = super()._register(request)
        self.registrations.append((self.places[-1], answer.broker_epoch, [each.hex() for each in request.log_dirs]))
        return answer

    def kept(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "events": [[place, kind, [key[0].hex(), key[1]], what] for place, kind, key, what in self.events],
            "registrations": self.registrations,
            "log": [
                [place, each.base_offset, each.last_offset, each.epoch, each.data.hex()]
                for place, each in zip(self.places, self.log, strict=True)
            ],
        }

    def take_up(self, kept: dict[str, Any], moment: int) -> None:
        """Restore the state at a moment; from then on it changes here, and the recorded broker is dead."""
        self.state = State.at(kept, moment)
        for place, base, last, epoch, data in kept["log"]:
            if place <= moment:
                self.places.append(place)
                self.log.append(Stored(base, last, epoch, bytes.fromhex(data)))
        if self.log:
            self.append(self.peer_record())
        else:
            self.begin()
        self._batches.number = 1 << 30
        self.leave()
