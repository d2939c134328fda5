"""A server.properties of Kafka 0.7.2 with every key that its broker reads, none at its default, taken as it is."""

from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BROKER_SETTINGS, BrokerConfig
from kafkalite.settings.properties import parse_properties
from kafkalite.settings.rows import ConfigSource, ConfigSynonym
from kafkalite.settings.topic_setting_lookup import TopicConfig
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_1, OracleMessage

FILE = """
# Server basics
brokerid=4
hostname=broker.example
port=9073
num.threads=3
socket.send.buffer=1048576
socket.receive.buffer=524288
max.socket.request.bytes=1000000
monitoring.period.secs=60
# The log
log.dir=/tmp/kafka-logs
num.partitions=2
topic.partition.count.map=a:3, broken, b:x
max.message.size=900
max.topic.name.length=200
log.flush.interval=10000
topic.flush.intervals.ms=a:70
log.default.flush.interval.ms=90
log.default.flush.scheduler.interval.ms=1000
log.file.size=536870912
topic.log.file.size=a:1000
log.roll.hours=24
topic.log.roll.hours=a:2
log.retention.hours=48
topic.log.retention.hours=a:3
log.retention.size=1073741824
topic.log.retention.size=a:5000
log.cleanup.interval.mins=1
# ZooKeeper
enable.zookeeper=false
zk.connect=127.0.0.1:2181/kafka
zk.connectiontimeout.ms=8000
zk.sessiontimeout.ms=7000
zk.synctime.ms=3000
"""
"""Section 7.1 and 7.2 of the description of 0.7, all keys."""

BROKER = {
    "node.id": 4, "hostname": "broker.example", "listeners": "kafka07://:9073,kafka://127.0.0.1:9092",
    "num.network.threads": 3, "socket.send.buffer.bytes": 1048576, "socket.receive.buffer.bytes": 524288,
    "socket.request.max.bytes": 1000000, "log.dirs": ("/tmp/kafka-logs",), "num.partitions": 2,
    "topic.partition.count.map": "a:3, broken, b:x", "max.message.size": 900, "log.flush.interval": 10000,
    "topic.flush.intervals.ms": "a:70", "log.default.flush.interval.ms": 90,
    "log.default.flush.scheduler.interval.ms": 1000, "log.segment.bytes": 536870912, "topic.log.file.size": "a:1000",
    "log.roll.hours": 24, "topic.log.roll.hours": "a:2", "log.retention.hours": 48, "topic.log.retention.hours": "a:3",
    "log.retention.bytes": 1073741824, "topic.log.retention.size": "a:5000", "log.retention.check.interval.ms": 60000,
    "enable.zookeeper": False, "zookeeper.connect": "127.0.0.1:2181/kafka", "zk.connectiontimeout.ms": 8000,
    "zk.sessiontimeout.ms": 7000,
}  # fmt: skip
"""Settings with an effect, by the broker's own key."""

WITHOUT_EFFECT = {"monitoring.period.secs": 60, "max.topic.name.length": 200, "zk.synctime.ms": 3000}

CLASSIC = {"message.format": "classic"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "server.properties"
    made.write_text(FILE)
    return made


def test_every_key_has_its_effect_or_is_said_to_have_none(path: Path) -> None:
    config = BrokerConfig.load(path)
    values = {key: getattr(config, BROKER_SETTINGS[key].attribute) for key in {**BROKER, **WITHOUT_EFFECT}}
    assert values == {**BROKER, **WITHOUT_EFFECT}
    assert sorted(config.notes) == [f"{key} is accepted but has no effect" for key in sorted(WITHOUT_EFFECT)]
    assert len(parse_properties(FILE)) == len(BROKER) + len(WITHOUT_EFFECT)
    for key, value in values.items():
        assert value != BROKER_SETTINGS[key].default, f"{key} is at its default, which shows nothing"


def test_topics_have_their_own_values_or_the_brokers(path: Path) -> None:
    broker = BrokerConfig.load(path)
    assert [broker.classic_partition_count(name) for name in "abc"] == [3, 2, 2]
    own, other = (TopicConfig.resolve(broker, CLASSIC, name) for name in ("a", "b"))
    for config in (own, other):
        assert (config.flush_messages, config.max_message_bytes) == (10000, 900)
    assert (own.flush_ms, own.segment_bytes, own.retention_bytes) == (70, 1000, 5000)
    assert (own.segment_ms, own.retention_ms) == (2 * 3_600_000, 3 * 3_600_000)
    assert (other.flush_ms, other.segment_bytes, other.retention_bytes) == (90, 536870912, 1073741824)
    assert (other.segment_ms, other.retention_ms) == (24 * 3_600_000, 48 * 3_600_000)
    today = TopicConfig.resolve(broker, {}, "a")
    assert (today.segment_bytes, today.segment_ms) == (536870912, 24 * 3_600_000), "the maps are for classic topics"


def synonyms(broker: BrokerConfig, topic: str, key: str, own: str | None = None) -> list[ConfigSynonym]:
    """Where a topic's setting could come from; `own` is its own text for it."""
    config = TopicConfig.resolve(broker, CLASSIC if own is None else {**CLASSIC, key: own}, topic)
    (entry,) = [entry for entry in config.describe(broker, topic) if entry.name == key]
    assert entry.source == entry.synonyms[0].source
    return list(entry.synonyms)


def test_a_classic_topics_settings_say_where_they_come_from(path: Path) -> None:
    broker = BrokerConfig.load(path)
    static, default = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT
    assert synonyms(broker, "a", "flush.ms") == [
        ("topic.flush.intervals.ms", "a:70", static),
        ("log.default.flush.interval.ms", "90", static),
        ("log.default.flush.scheduler.interval.ms", "1000", static),
        ("log.default.flush.scheduler.interval.ms", "3000", default),
    ]
    assert synonyms(broker, "b", "flush.ms")[0] == ("log.default.flush.interval.ms", "90", static)
    assert synonyms(BrokerConfig.load(), "b", "flush.ms") == [
        ("log.default.flush.scheduler.interval.ms", "3000", default)
    ]
    assert synonyms(broker, "b", "flush.messages") == [
        ("log.flush.interval", "10000", static),
        ("log.flush.interval", "500", default),
    ]
    assert synonyms(broker, "b", "max.message.bytes", own="700") == [
        ("max.message.bytes", "700", ConfigSource.DYNAMIC_TOPIC),
        ("max.message.size", "900", static),
        ("max.message.size", "1000000", default),
    ]
    assert synonyms(broker, "a", "retention.bytes")[:2] == [
        ("topic.log.retention.size", "a:5000", static),
        ("log.retention.bytes", "1073741824", static),
    ]
    assert synonyms(broker, "b", "segment.bytes")[0] == ("log.segment.bytes", "536870912", static)
    assert synonyms(broker, "a", "cleanup.policy")[0][0] == "log.cleanup.policy"


@pytest.mark.parametrize(
    ("lines", "listeners", "note"),
    [
        ("brokerid=0\nport=9073", "kafka07://:9073,kafka://127.0.0.1:9092", None),
        ("brokerid=0", "kafka07://:6667,kafka://127.0.0.1:9092", None),
        ("brokerid=0\nport=9092", "kafka07://:9092", "set listeners to serve current clients"),
        ("brokerid=0\nport=1\nlisteners=kafka://:2", "kafka://:2", "port is ignored because listeners is also set"),
        ("brokerid=0\nnode.id=5\nlisteners=kafka://:2", "kafka://:2", "brokerid is ignored because node.id is"),
    ],
)
def test_its_port_speaks_its_protocol(tmp_path: Path, lines: str, listeners: str, note: str | None) -> None:
    (tmp_path / "file").write_text(lines)
    config = BrokerConfig.load(tmp_path / "file")
    assert config.listeners == listeners
    assert [note in text for text in config.notes] == ([True] if note else [])


def test_a_port_alone_is_refused_as_kafka_does() -> None:
    with pytest.raises(ConfigError, match="use listeners"):
        BrokerConfig.load(None, {"port": 9092})


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("log.file.size=big", "log.file.size: must be a whole number, not 'big'"),
        ("brokerid=-1", "brokerid: must be at least 0"),
        ("log.cleanup.interval.mins=0", "log.cleanup.interval.mins: must be at least 1"),
        ("log.flush.interval=0", "log.flush.interval: must be at least 1"),
        ("enable.zookeeper=yes", "enable.zookeeper: must be true or false"),
        ("log.flash.interval=7", "log.flash.interval: unknown setting; did you mean log.flush.interval"),
    ],
)
def test_a_bad_line_is_named_as_it_was_written(tmp_path: Path, line: str, text: str) -> None:
    (tmp_path / "file").write_text(f"brokerid=0\n{line}")
    with pytest.raises(ConfigError, match=text):
        BrokerConfig.load(tmp_path / "file")


def test_a_broker_runs_with_it(path: Path, tmp_path: Path) -> None:
    """Its own port and directory apart, which a test cannot take: partitions, flushes, rolls and limits as it says."""
    listeners = "kafka07://127.0.0.1:0,kafka://127.0.0.1:0"
    broker = Broker(BrokerConfig.load(path, {"listeners": listeners, "log.dir": str(tmp_path / "logs")})).start()
    try:
        assert broker.classic_endpoint is not None
        with ClassicClient(broker.classic_endpoint.port) as client:
            client.send(oracle.produce("a", 2, HELLO_1 * 70))
            client.wait_for("a", 2, 1050)  # by time: topic.flush.intervals.ms
            client.send(oracle.produce("a", 2, OracleMessage(bytes(901)).encode()))
            client.send(oracle.produce("a", 2, HELLO_1))
            client.wait_for("a", 2, 1065)
            assert client.fetch("a", 3, 0)[0] == 3
        names = sorted(file.name for file in (tmp_path / "logs" / "a-2").glob("*.kafka"))
        assert names == [f"{start:020d}.kafka" for start in (0, 1050)]
    finally:
        broker.stop()
