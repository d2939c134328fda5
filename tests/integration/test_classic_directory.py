"""Directories of Kafka 0.7: one built byte by byte starts, recovers and serves; an independent reader reads ours."""

import struct
import time
from pathlib import Path

import confluent_kafka
import pytest

from kafkalite.broker import Broker
from kafkalite.classic import Message, Producer, ProducerConfig, ProducerData, SimpleConsumer
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_directory
from tests.kit.oracles.classic_oracle import (
    HELLO_0,
    HELLO_1,
    OracleMessage,
    encode_set,
    gzip_wrapper,
    produce,
    read_deep,
)
from tests.kit.processes.broker import BrokerProcess, free_port

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0
X = encode_set([OracleMessage(b"x" * 100, magic=0)] * 100)
GZIPPED = gzip_wrapper([OracleMessage(b"in a wrapper %d" % i) for i in range(5)]).encode()
TORN = OracleMessage(b"never wholly written").encode()[:-7]
NONSENSE = struct.pack(">i", 17) + b"left by a disk that lost its power" * 9

DIRECTORY = {
    "old-0": (0, [X[:5450], X[5450:]]),  # as 0.6 wrote it: magic 0, begins 00000069 00 5e0e5d8f
    "web-logs-0": (0, [HELLO_1 * 3, HELLO_0 + GZIPPED + TORN]),
    "web-logs-1": (4711, [GZIPPED + HELLO_1 + NONSENSE]),
    "empty-0": (99, [b""]),
}
KEPT = {
    ("old", 0): (0, X),
    ("web-logs", 0): (0, HELLO_1 * 3 + HELLO_0 + GZIPPED),
    ("web-logs", 1): (4711, GZIPPED + HELLO_1),
    ("empty", 0): (99, b""),
}
PROPERTIES = """
brokerid=0
port={port}
log.dir={directory}
num.partitions=1
topic.partition.count.map=web-logs:2
log.flush.interval=1
enable.zookeeper=false
"""


def read_by_todays_client(bootstrap: str, topic: str, partition: int, start: int, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "check.crcs": True, "fetch.wait.max.ms": 50}
    reader = confluent_kafka.Consumer({**settings, "auto.offset.reset": "error"})
    reader.assign([confluent_kafka.TopicPartition(topic, partition, start)])
    values: list[bytes] = []
    while len(values) < count:
        found = reader.consume(count - len(values), TIMEOUT_S)
        assert found, f"{len(values)} of {count} messages in time"
        for message in found:
            assert message.error() is None, message.error()
            values.append(message.value())
    reader.close()
    return values


def test_one_built_byte_by_byte_starts_recovers_and_serves(tmp_path: Path) -> None:
    assert X.startswith(bytes.fromhex("00000069 00 5e0e5d8f 78"))
    root, port, today = tmp_path / "process" / "data", free_port(), free_port()
    root.parent.mkdir()
    classic_directory.build(root, DIRECTORY)
    (root / "a plain file").write_bytes(b"which 0.7 skips")
    (tmp_path / "server.properties").write_text(PROPERTIES.format(port=port, directory=root))
    command = (*BrokerProcess.command, "--config", str(tmp_path / "server.properties"))
    listeners = {"listeners": f"kafka://127.0.0.1:{today},kafka07://127.0.0.1:{port}"}
    with BrokerProcess(root.parent, listeners, port=today, command=command) as broker:
        with ClassicClient(port) as client:
            for (topic, partition), (start, data) in KEPT.items():
                assert client.read_all(topic, partition, start) == data
                assert client.offsets(topic, partition, -2) == [start]
                assert client.offsets(topic, partition, -1) == [start + len(data)]
                payloads = [payload for payload, _ in read_deep(data)]
                assert read_by_todays_client(broker.bootstrap, topic, partition, start, len(payloads)) == payloads
                client.send(produce(topic, partition, HELLO_1))
                client.wait_for(topic, partition, start + len(data) + 15)
        broker.stop()
    left = {key: (start, [*(p for p, _ in read_deep(data)), b"hello"]) for key, (start, data) in KEPT.items()}
    found = classic_directory.read(root)
    assert {key: value for key, value in found.items() if key in left} == left
    assert {topic for topic, _ in found.keys() - left.keys()} <= {"__consumer_offsets"}, "today's, of another format"
    assert (root / classic_directory.CLEAN_SHUTDOWN).exists()


def visible_count(consumer: SimpleConsumer) -> int:
    """Messages of t-0 that a fetch finds."""
    count = offset = 0
    while found := consumer.fetch("t", 0, offset, 1 << 20):
        count += sum(1 for _ in found)
        offset += found.valid_size
    return count


def test_ours_is_read_by_a_reader_written_from_the_description(tmp_path: Path) -> None:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0", "log.dirs": str(tmp_path / "logs"),
        "log.segment.bytes": 1000, "log.flush.interval": 1,
    }  # fmt: skip
    sent: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    with Broker(settings) as broker:
        assert broker.classic_endpoint is not None
        port = broker.classic_endpoint.port
        with SimpleConsumer("127.0.0.1", port) as consumer:
            for turn in range(12):
                codec, magic = turn % 3, 1 if turn % 3 else turn % 2  # in a wrapper there is magic 1 alone
                payloads = [b"%d of turn %d" % (i, turn) * (i % 7) for i in range(20)]
                with Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{port}", compression_codec=codec)) as producer:
                    producer.send(ProducerData("t", [Message(payload, magic=magic) for payload in payloads]))
                sent += payloads
                while visible_count(consumer) < len(sent):
                    assert time.monotonic() < deadline, "what was sent is not visible in time"
    assert classic_directory.read(tmp_path / "logs") == {("t", 0): (0, sent)}
    assert len(list((tmp_path / "logs" / "t-0").glob("*.kafka"))) > 2
