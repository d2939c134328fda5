"""Write one of everything that a data directory can hold, by clients, and read it back as clients see it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafkalite.client import Client
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles.classic_oracle import HELLO_1, OracleMessage, encode_set, gzip_wrapper, produce
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 60.0
TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment.bytes": "20000", "retention.ms": "-1"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {**SMALL, "max.message.bytes": "900000"}),
    "compacted": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "stamped": (1, {**SMALL, "message.timestamp.type": "LogAppendTime"}),
    "packed": (1, {**SMALL, "compression.type": "zstd"}),
    "shortened": (1, SMALL),
    "transactions": (2, SMALL),
    "gone": (1, {}),
    "again": (1, {}),
    "classic": (2, {"message.format": "classic", "retention.ms": "-1"}),
}
OPEN_ID = "left-open"
COMPACTED_KEYS = 5


class Clients:
    """Clients of one broker, until they are closed. Those with an open transaction stay so."""

    def __init__(self, bootstrap: str, classic_port: int) -> None:
        self.bootstrap = bootstrap
        self.classic_port = classic_port
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        (self.node,) = map(str, self.admin.list_topics(timeout=TIMEOUT_S).brokers)
        self._open: list[confluent_kafka.Producer] = []

    def producer(self, **settings: Any) -> confluent_kafka.Producer:
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 2, **texts})

    def consumer(self, group: str, **settings: Any) -> confluent_kafka.Consumer:
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        fixed = {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False}
        return confluent_kafka.Consumer({**fixed, "auto.offset.reset": "earliest", "check.crcs": True, **texts})

    # ---- writing ----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Everything that a directory can hold."""
        self._make_topics()
        self._write_plain()
        self._write_compacted()
        self._write_transactions()
        self._write_classic()
        self._commit_offsets()
        self._delete()

    def go_on(self) -> None:
        """What clients do with a broker that took a directory over: they carry on."""
        producer = self.producer(transactional_id=OPEN_ID)
        producer.init_transactions(TIMEOUT_S)  # ends what was left open
        producer.begin_transaction()
        self.send(producer, "transactions", 1, [b"carried on %d" % i for i in range(5)])
        producer.commit_transaction(TIMEOUT_S)
        for partition in range(3):
            values = [b"carried on %d" % i for i in range(40)]
            self.send(self.producer(enable_idempotence=True), "plain", partition, values)
        self.commit("classic-members", ["plain"], 30)
        with ClassicClient(self.classic_port) as client:
            at = client.offsets("classic", 0)[0]
            client.send(produce("classic", 0, HELLO_1))
            client.wait_for("classic", 0, at + len(HELLO_1))

    def send(self, producer: confluent_kafka.Producer, topic: str, partition: int, values: list[bytes]) -> None:
        """Deliver values with distinct keys, headers and timestamps."""
        failed: list[object] = []
        for i, value in enumerate(values):
            producer.produce(
                topic,
                value,
                f"key {i % 7}".encode(),
                partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                timestamp=TIME_MS + 1000 * i,
                headers=[("number", b"%d" % i), ("empty", None)],
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert failed == []

    def _make_topics(self) -> None:
        wanted = [NewTopic(name, count, 1, config=settings) for name, (count, settings) in TOPICS.items()]
        for future in self.admin.create_topics(wanted).values():
            future.result(TIMEOUT_S)
        self._alter(ResourceType.TOPIC, "plain", "retention.ms", "864000000000")
        self._alter(ResourceType.BROKER, self.node, "message.max.bytes", "1048500")

    def _alter(self, kind: ResourceType, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    def _write_plain(self) -> None:
        for number, codec in enumerate(CODECS):
            values = [f"{codec} {i} ".encode() * (1 + i % 9) for i in range(150)]
            self.send(self.producer(compression_type=codec, enable_idempotence=True), "plain", number % 3, values)
        for topic in ("stamped", "packed", "shortened", "gone", "again"):
            self.send(self.producer(), topic, 0, [b"%d" % i * 50 for i in range(300)])

    def _write_compacted(self) -> None:
        producer = self.producer(enable_idempotence=True)
        for round_number in range(40):
            for key in range(COMPACTED_KEYS):
                producer.produce("compacted", b"%d" % round_number * 200, b"%d" % key, 0, timestamp=TIME_MS)
            producer.flush(TIMEOUT_S)
        producer.produce("compacted", None, b"1", 0, timestamp=TIME_MS)
        producer.flush(TIMEOUT_S)
        _, end = self.watermarks("compacted", 0)
        few = end // 2
        wait_until(lambda: len(self.records("compacted", 0, committed=False)) < few, TIMEOUT_S, "compaction", 0.2)

    def _write_transactions(self) -> None:
        for outcome in ("commit", "abort", "commit"):
            producer = self.producer(transactional_id="ended")
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            for partition in range(2):
                self.send(producer, "transactions", partition, [f"{outcome} {i}".encode() for i in range(20)])
            if outcome == "commit":
                with self._member("in-transactions", ["plain"], 10) as (consumer, offsets):
                    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        left = self.producer(transactional_id=OPEN_ID, transaction_timeout_ms=600_000)
        left.init_transactions(TIMEOUT_S)
        left.begin_transaction()
        self.send(left, "transactions", 1, [b"nobody knows yet %d" % i for i in range(10)])
        self._open.append(left)

    def _write_classic(self) -> None:
        packed = gzip_wrapper([OracleMessage(b"in a wrapper %d" % i) for i in range(5)]).encode()
        data = encode_set([OracleMessage(b"message %d" % i) for i in range(50)]) + packed
        with ClassicClient(self.classic_port) as client:
            for partition in range(2):
                client.send(produce("classic", partition, data))
                client.wait_for("classic", partition, len(data))

    def _commit_offsets(self) -> None:
        self.commit("classic-members", ["plain", "stamped"], 40)
        self.commit("new-members", ["plain", "packed"], 50, group_protocol="consumer")
        alone = self.consumer("nobody-joined")
        alone.commit(offsets=[TopicPartition("plain", 1, 17, metadata="a word")], asynchronous=False)
        alone.close()

    def commit(self, group: str, topics: list[str], count: int, **settings: Any) -> None:
        """Joins, reads `count` records, commits where it is, leaves."""
        with self._member(group, topics, count, **settings) as (consumer, offsets):
            consumer.commit(offsets=offsets, asynchronous=False)

    @contextlib.contextmanager
    def _member(
        self, group: str, topics: list[str], count: int, **settings: Any
    ) -> Iterator[tuple[confluent_kafka.Consumer, list[TopicPartition]]]:
        consumer = self.consumer(group, **settings)
        consumer.subscribe(topics)
        at: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + TIMEOUT_S
        seen = 0
        while seen < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                at[message.topic(), message.partition()] = message.offset() + 1
                seen += 1
        assert seen == count, f"{seen} of {count} records"
        yield consumer, [TopicPartition(topic, number, offset) for (topic, number), offset in at.items()]
        consumer.close()

    def _delete(self) -> None:
        for future in self.admin.delete_records([TopicPartition("shortened", 0, 123)]).values():
            future.result(TIMEOUT_S)
        for future in self.admin.delete_topics(["gone", "again"]).values():
            future.result(TIMEOUT_S)
        for future in self.admin.create_topics([NewTopic("again", 1, 1)]).values():
            future.result(TIMEOUT_S)
        self.send(self.producer(), "again", 0, [b"the second"])

    # ---- looking ----------------------------------------------------------------------------------------------------

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, high watermark."""
        consumer = self.consumer("looking")
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        finally:
            consumer.close()
        return low, high

    def records(self, topic: str, partition: int, *, committed: bool) -> list[tuple[Any, ...]]:
        """Everything in a partition: offset, key, value, headers, (kind of time, ms)."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = self.consumer("looking", isolation_level=level, enable_partition_eof=True)
        consumer.assign([TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
        found: list[tuple[Any, ...]] = []
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, f"{topic}-{partition}: nothing comes"
                error = message.error()
                if error is not None:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    return found
                time_of = message.timestamp()
                found.append((message.offset(), message.key(), message.value(), message.headers(), time_of))
        finally:
            consumer.close()

    def look(self) -> dict[str, object]:
        """What there is to see, by name."""
        seen: dict[str, object] = {}
        topics = self.admin.list_topics(timeout=TIMEOUT_S).topics
        names = sorted(name for name in topics if not name.startswith("__"))
        described = self.admin.describe_topics(confluent_kafka.TopicCollection(names))
        for name in names:
            seen[f"topic {name}: id"] = str(described[name].result(TIMEOUT_S).topic_id)
            for number in sorted(topics[name].partitions):
                where = f"{name}-{number}"
                seen[f"{where}: watermarks"] = self.watermarks(name, number)
                if name == "compacted":  # compaction continues meanwhile
                    newest = {record[1]: record for record in self.records(name, number, committed=False)}
                    seen[f"{where}: the newest of each key"] = sorted(newest.values())
                    continue
                seen[f"{where}: records"] = self.records(name, number, committed=False)
                seen[f"{where}: committed records"] = self.records(name, number, committed=True)
                if name != "classic":
                    seen[f"{where}: stable, newest, at a time"] = self._offsets(name, number)
        self._look_at_groups(seen)
        self._look_at_settings(seen, names)
        with ClassicClient(self.classic_port) as client:
            for number in range(2):
                seen[f"classic-{number}: bytes"] = client.read_all("classic", number)
        return seen

    def _offsets(self, topic: str, partition: int) -> list[object]:
        asked: list[tuple[OffsetSpec, Any]] = [
            (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
            (OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED),
            (OffsetSpec.for_timestamp(TIME_MS + 20_000), IsolationLevel.READ_UNCOMMITTED),
        ]
        where = TopicPartition(topic, partition)
        found = []
        for spec, level in asked:
            (future,) = self.admin.list_offsets({where: spec}, isolation_level=level).values()
            result = future.result(TIMEOUT_S)
            found.append((result.offset, result.timestamp))
        return found

    def _look_at_groups(self, seen: dict[str, object]) -> None:
        listed = self.admin.list_consumer_groups().result(TIMEOUT_S).valid
        for group in sorted(listed, key=lambda each: each.group_id):
            if group.group_id == "looking":
                continue
            seen[f"group {group.group_id}: kind, state"] = (str(group.type), str(group.state))
        with Client(self.bootstrap) as client:
            for group in sorted(listed, key=lambda each: each.group_id):
                if group.group_id != "looking":
                    offsets = client.groups.committed(group.group_id)
                    seen[f"group {group.group_id}: offsets"] = sorted(map(str, offsets.items()))
            for transaction in sorted(client.transactions.list()):
                described = client.transactions.describe(transaction.transactional_id)
                seen[f"transactional id {transaction.transactional_id}"] = str(described)

    def _look_at_settings(self, seen: dict[str, object], names: list[str]) -> None:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        resources.append(ConfigResource(ResourceType.BROKER, self.node))
        for resource, future in self.admin.describe_configs(resources).items():
            own = {
                entry.name: entry.value
                for entry in future.result(TIMEOUT_S).values()
                if entry.source in {1, 2}  # DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG
            }
            seen[f"settings of {resource.name}"] = own


def differences(before: dict[str, object], after: dict[str, object]) -> Iterator[str]:
    """What two looks do not agree on, in words."""
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was != now:
            if isinstance(was, list) and isinstance(now, list):
                pairs = enumerate(zip(was, now, strict=False))
                first = next((i for i, (one, other) in pairs if one != other), min(len(was), len(now)))
                was, now = [len(was), *was[first : first + 1]], [len(now), *now[first : first + 1]]
            yield f"{name}: {str(was)[:300]} | {str(now)[:300]}"
