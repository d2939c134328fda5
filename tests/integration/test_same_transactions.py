"""What Apache Kafka 4.1 answers a transactional producer, kafkalite answers: every code of both protocols.

A story is played on both, in the versions of either protocol; each answer becomes a line (label, codes, epoch), and the
lines are compared. Codes that mean "not yet" are asked again. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from kafkalite.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.checkers.side_by_side import Side, two_brokers
from tests.kit.harness import wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRANSACTIONAL = 0x10
WORTH_SEEING = {
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
}
"""What Kafka has to have answered somewhere, or the stories showed little."""
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
DEADLINE_S = 8
DIFFERENT = {
    "list long": "Kafka lists ids that have no transaction open, too",
    "list short": "the same",
}
"""Label → why the answers differ on purpose."""


@dataclass
class Player:
    """Plays on one side, as one transactional producer after another."""

    side: Side
    lines: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def until(self, label: str, ask: Callable[[], Any], again: set[int]) -> Any:
        """Notes what `ask` returns: codes, or a tuple that begins with one."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = ask()
            first = found[0] if isinstance(found, (tuple, list)) and found else found
            if first not in again or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if label:
            assert label not in self.lines, f"{label} twice"
            self.lines[label] = found
        return found

    def init(self, label: str, version: int, *, again: bool = True, keep: bool = True, **more: Any) -> Any:
        request = InitProducerIdRequest(**{"transactional_id": self.name, "transaction_timeout_ms": 60_000, **more})

        def ask() -> tuple[int, int]:
            answer = self.side.ask(api.INIT_PRODUCER_ID, version, request)
            if answer.error_code == 0 and keep:
                if answer.producer_id != self.producer_id:
                    self.sequences.clear()
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
            return answer.error_code, answer.producer_epoch

        return self.until(label, ask, NOT_YET | ({ErrorCode.CONCURRENT_TRANSACTIONS} if again else set()))

    def start(self, name: str, version: int = 4) -> None:
        """A new transactional id."""
        self.look_up(name)
        self.init("", version)
        self.init("", version)  # so that there is an older epoch

    def look_up(self, name: str, key_type: int = 1) -> None:
        """Finds the coordinator of a new id, or of a group; Kafka makes its topic for that."""
        if key_type == 1:
            self.name = name
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        self.until("", lambda: self.side.ask(api.FIND_COORDINATOR, 4, request).coordinators[0].error_code, NOT_YET)

    def add(self, label: str, version: int, *partitions: int, topic: str = "t", **more: Any) -> Any:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if more.pop("and_missing", False):
            topics.append(AddPartitionsToTxnTopic(name="missing", partitions=[0]))
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        request = AddPartitionsToTxnRequest(
            v3_and_below_topics=topics, **{f"v3_and_below_{key}": value for key, value in fields.items()}
        )

        def ask() -> list[int]:
            answer = self.side.ask(api.ADD_PARTITIONS_TO_TXN, version, request)
            rows = sorted(answer.results_by_topic_v3_and_below, key=lambda row: row.name, reverse=True)
            return [row.partition_error_code for topic in rows for row in topic.results_by_partition]

        return self.until(label, ask, NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS})

    def write(self, label: str, version: int, partition: int = 0, **more: Any) -> Any:
        transactional = more.pop("transactional", True)
        sequence = self.sequences.get(partition, 0)
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence, **more}
        batch = wire.batch_of([wire.Record(value=b"v")], attributes=TRANSACTIONAL if transactional else 0, **fields)
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(
            transactional_id=self.name if transactional else None, acks=-1, timeout_ms=30_000, topic_data=[topic]
        )

        def ask() -> int:
            return int(self.side.ask(api.PRODUCE, version, request).responses[0].partition_responses[0].error_code)

        code = self.until(label, ask, {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS})
        if code == 0 and not more:
            self.sequences[partition] = sequence + 1
        return code

    def add_group(self, label: str, version: int, group: str = "g", **more: Any) -> Any:
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        request = AddOffsetsToTxnRequest(group_id=group, **fields)
        return self.until(
            label,
            lambda: self.side.ask(api.ADD_OFFSETS_TO_TXN, version, request).error_code,
            NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS},
        )

    def commit(
        self, label: str, version: int, offset: int = 1, *, topic: str = "t", metadata: str = "", **more: Any
    ) -> Any:
        partition = TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        request = TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])], **{"group_id": "g", **fields}
        )

        def ask() -> int:
            return int(self.side.ask(api.TXN_OFFSET_COMMIT, version, request).topics[0].partitions[0].error_code)

        return self.until(label, ask, NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS})

    def end(self, label: str, version: int, *, commit: bool = True, again: bool = True, **more: Any) -> Any:
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        request = EndTxnRequest(committed=commit, **fields)

        def ask() -> tuple[int, int]:
            answer = self.side.ask(api.END_TXN, version, request)
            if answer.error_code == 0 and version >= 5 and not more:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
            return answer.error_code, answer.producer_epoch if version >= 5 else -1

        return self.until(label, ask, NOT_YET | ({ErrorCode.CONCURRENT_TRANSACTIONS} if again else set()))

    def complete(self) -> None:
        """Waits for the markers of what has ended."""

        def state() -> int:
            return int(self.described()[1].startswith("Prepare"))

        self.until("", state, {1})

    def described(self) -> tuple[int, str, int, int, list[tuple[str, list[int]]]]:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        (row,) = self.side.ask(api.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in row.topics)
        return row.error_code, row.transaction_state, row.transaction_timeout_ms, row.producer_epoch, topics

    def describe(self, label: str) -> None:
        self.lines[label] = self.described()

    def fetch(self, label: str, group: str = "g") -> Any:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
        request = OffsetFetchRequest(groups=[asked], require_stable=True)

        def ask() -> tuple[int, int, int]:
            (found,) = self.side.ask(api.OFFSET_FETCH, 8, request).groups
            if found.error_code:
                return found.error_code, 0, 0
            row = found.topics[0].partitions[0]
            return found.error_code, row.error_code, row.committed_offset

        return self.until(label, ask, NOT_YET)


def play_old_protocol(player: Player) -> None:
    play_inits(player)
    play_additions(player)
    play_writes(player)
    play_ends(player)
    play_offsets(player)


def play_inits(player: Player) -> None:
    for version in range(6):
        player.look_up(f"init-{version}")
        player.init(f"first init {version}", version)
        player.init(f"second init {version}", version)
        player.init(f"empty id {version}", version, keep=False, transactional_id="")
        for timeout in (0, -1, 900_001):
            player.init(f"timeout {timeout} {version}", version, keep=False, transaction_timeout_ms=timeout)
        if version >= 3:
            mine = {"producer_id": player.producer_id, "producer_epoch": player.epoch}
            player.init(f"kip360 current {version}", version, keep=False, **mine)
            player.init(f"kip360 repeated {version}", version, **mine)
            player.init(f"kip360 older {version}", version, keep=False, **mine | {"producer_epoch": 0})
            player.init(f"kip360 later {version}", version, keep=False, **mine | {"producer_epoch": 9})
            player.init(f"kip360 stranger {version}", version, keep=False, **mine | {"producer_id": 77_777})


def play_additions(player: Player) -> None:
    for version in range(4):
        player.start(f"add-{version}")
        player.add(f"add nobody {version}", version, 0, transactional_id="nobody")
        player.add(f"add empty id {version}", version, 0, transactional_id="")
        player.add(f"add stranger {version}", version, 0, producer_id=77_777)
        player.add(f"add older {version}", version, 0, producer_epoch=player.epoch - 1)
        player.add(f"add later {version}", version, 0, producer_epoch=player.epoch + 1)
        player.add(f"add missing {version}", version, 0, 1, and_missing=True)
        player.describe(f"add described empty {version}")
        player.add(f"add {version}", version, 0, 1)
        player.add(f"add again {version}", version, 0, 1)
        player.describe(f"add described {version}")
        player.end("", 3)
        player.complete()


def play_writes(player: Player) -> None:
    for version in (9, 10, 11):
        player.start(f"write-{version}")
        player.write(f"write unadded empty {version}", version)
        player.add("", 3, 0)
        player.write(f"write {version}", version)
        player.write(f"write other partition {version}", version, 1)
        player.write(f"write plain {version}", version, transactional=False)
        player.write(f"write older {version}", version, producer_epoch=player.epoch - 1)
        player.write(f"write stranger {version}", version, 1, producer_id=77_777)
        player.end("", 3)
        player.complete()
        player.write(f"write after end {version}", version)


def play_ends(player: Player) -> None:
    for version in range(5):
        player.start(f"end-{version}")
        player.end(f"end empty {version}", version)
        player.end(f"abort empty {version}", version, commit=False)
        player.end(f"end nobody {version}", version, transactional_id="nobody")
        player.end(f"end empty id {version}", version, transactional_id="")
        player.add("", 3, 0)
        player.end(f"end stranger {version}", version, producer_id=77_777)
        player.end(f"end older {version}", version, producer_epoch=player.epoch - 1)
        player.end(f"end later {version}", version, producer_epoch=player.epoch + 1)
        player.end(f"end {version}", version)
        player.complete()
        player.end(f"end again {version}", version)
        player.end(f"abort the committed {version}", version, commit=False)
        player.describe(f"end described {version}")
        player.add("", 3, 0)
        player.end(f"abort {version}", version, commit=False)
        player.complete()
        player.end(f"abort again {version}", version, commit=False)
        player.end(f"commit the aborted {version}", version)
        player.add("", 3, 0)
        player.init(f"init with open {version}", 4, again=False, keep=False)
        player.init(f"init again {version}", 4)


def play_offsets(player: Player) -> None:
    for version in range(5):
        group = f"g{version}"
        player.start(f"offsets-{version}")
        player.look_up(group, 0)
        player.commit(f"offsets unadded {version}", version, group_id=group)
        player.add_group(f"group nobody {version}", version, group, transactional_id="nobody")
        player.add_group(f"group older {version}", version, group, producer_epoch=player.epoch - 1)
        player.add_group(f"group without id {version}", version, "")
        player.add_group(f"group {version}", version, group)
        player.commit(f"offsets {version}", version, 5, group_id=group)
        player.commit(f"offsets missing {version}", version, topic="missing", group_id=group)
        player.commit(f"offsets long {version}", version, metadata="x" * 5000, group_id=group)
        player.commit(f"offsets older {version}", version, group_id=group, producer_epoch=player.epoch - 1)
        player.commit(f"offsets empty group {version}", version, group_id="")
        if version >= 3:
            player.commit(f"offsets member {version}", version, group_id=group, member_id="m", generation_id=3)
            player.commit(f"offsets generation {version}", version, group_id=group + "-new", generation_id=3)
        player.fetch(f"pending {version}", group)
        player.describe(f"group described {version}")
        player.end("", 3)
        player.complete()
        player.fetch(f"fetched {version}", group)


def play_new_protocol(player: Player) -> None:
    player.start("v2")
    player.write("v2 write", 12)
    player.describe("v2 described")
    player.write("v2 write elsewhere", 12, 1)
    player.write("v2 sequence", 12, 2, base_sequence=7)
    player.commit("v2 offsets", 5, 5, group_id="v2")
    player.fetch("v2 pending", "v2")
    before = {"producer_epoch": player.epoch}
    player.end("v2 end", 5)
    player.complete()
    player.fetch("v2 fetched", "v2")
    player.describe("v2 end described")
    player.end("v2 end again", 5, **before)
    player.end("v2 abort retried", 5, commit=False, **before)
    player.end("v2 commit of nothing", 5)
    player.end("v2 older", 5, producer_epoch=-1)
    player.end("v2 later", 5, producer_epoch=player.epoch + 1)
    player.end("v2 stranger", 5, producer_id=77_777)
    player.write("v2 late write", 12, **before)
    player.commit("v2 late offsets", 5, group_id="v2", **before)
    before = {"producer_epoch": player.epoch}
    player.end("v2 abort of nothing", 5, commit=False)
    player.complete()
    player.end("v2 abort again", 5, commit=False, **before)
    player.end("v2 commit retried", 5, **before)
    before = {"producer_epoch": player.epoch}
    player.write("v2 next", 12)
    player.end("v2 late end", 5, producer_epoch=player.epoch - 1)
    player.end("v2 late abort", 5, commit=False, producer_epoch=player.epoch - 1)
    player.end("v2 abort", 5, commit=False)
    player.complete()
    player.end("v2 aborted again", 5, commit=False, **before)
    player.write("v2 open", 12)
    player.init("v2 init with open", 5, again=False, keep=False)
    player.init("v2 init again", 5)
    player.end("v2 empty abort retried", 5, commit=False, producer_epoch=player.epoch - 1)
    player.end("v2 empty commit", 5)
    player.end("v2 empty abort", 5, commit=False)
    player.complete()
    player.describe("v2 last")


def play_listing(player: Player) -> None:
    def ask(label: str, version: int, **filters: Any) -> None:
        answer = player.side.ask(api.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))
        rows = sorted((row.transactional_id, row.transaction_state) for row in answer.transaction_states)
        player.lines[label] = (answer.error_code, rows, answer.unknown_state_filters)

    player.start("open")
    player.add("", 3, 0)
    for version in range(2):
        ask(f"list {version}", version)
        ask(f"list ongoing {version}", version, state_filters=["Ongoing"])
        ask(f"list unknown {version}", version, state_filters=["Ongoing", "Sleeping"])
        ask(f"list nothing but unknown {version}", version, state_filters=["Sleeping"])
        ask(f"list nobody's {version}", version, producer_id_filters=[77_777])
    ask("list long", 1, duration_filter=3_600_000)
    ask("list short", 1, duration_filter=0)
    player.name = "nobody"
    player.describe("describe nobody")
    player.name = ""
    player.describe("describe empty")


def test_same_answers_as_apache_kafka(tmp_path: Path) -> None:
    with two_brokers(tmp_path, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1") as sides:
        players = [Player(side) for side in sides]
        for player in players:
            topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
            player.side.ask(api.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
            for play in (play_old_protocol, play_new_protocol, play_listing):
                play(player)
    kafka, ours = (player.lines for player in players)
    assert kafka.keys() == ours.keys()
    found = [
        f"{label}\n  Kafka {kafka[label]}\n  ours  {ours[label]}"
        for label in kafka
        if kafka[label] != ours[label] and label not in DIFFERENT
    ]
    assert not found, f"{len(found)} of {len(kafka)} differ:\n" + "\n".join(found)
    seen = {ErrorCode(line[0] if isinstance(line, (tuple, list)) else line) for line in kafka.values()}
    assert seen >= WORTH_SEEING
