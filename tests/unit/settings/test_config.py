"""The settings table: parsing, precedence, refusals, and what DescribeConfigs will say."""

import re
from pathlib import Path

import pytest

from kafkalite.errors import ConfigError, StartupError
from kafkalite.settings.broker import BROKER_SETTINGS, BrokerConfig
from kafkalite.settings.listeners import Listener
from kafkalite.settings.properties import parse_properties
from kafkalite.settings.rows import ConfigEntry, ConfigSource, ConfigType, attribute_of, key_of
from kafkalite.settings.topic_setting_lookup import TopicConfig
from kafkalite.settings.topic_settings_table import REMOVED, TOPIC_SETTINGS

KRAFT_SERVER_PROPERTIES = """
# The file that Apache Kafka 4 ships for a single node, comments left out.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

ZOOKEEPER_SERVER_PROPERTIES = """
broker.id=7
num.network.threads=3
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def broker(**texts: object) -> BrokerConfig:
    return BrokerConfig.load(None, {key_of(name): value for name, value in texts.items()})


def entry(entries: object, name: str) -> ConfigEntry:
    (found,) = [item for item in entries if item.name == name]  # type: ignore[attr-defined]
    return found


def test_every_default_passes_its_own_check() -> None:
    for table in (BROKER_SETTINGS, TOPIC_SETTINGS):
        for row in table.values():
            text = row.render(row.default)
            if text is not None:
                assert row.parse(text) == row.default, row.key


def test_every_setting_is_documented_and_its_attribute_exists() -> None:
    for table, config in ((BROKER_SETTINGS, BrokerConfig()), (TOPIC_SETTINGS, TopicConfig())):
        for key, row in table.items():
            assert row.key == key
            assert row.doc.endswith("."), key
            assert getattr(config, row.attribute) == row.default, key


def test_no_text_of_a_setting_names_another_unit_than_its_own() -> None:
    units = re.compile(r"\bin (milliseconds|ms|seconds|s|minutes|hours|days|bytes)\b")
    rows = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
    named = {row.key: (units.findall(row.doc), row.unit) for row in rows}
    assert {key: found for key, (found, unit) in named.items() if set(found) - {unit}} == {}


def test_topic_defaults_equal_the_broker_settings_they_come_from() -> None:
    """Otherwise TopicConfig() and a topic on a default broker would differ."""
    resolved = TopicConfig.resolve(BrokerConfig())
    for row in TOPIC_SETTINGS.values():
        assert getattr(resolved, row.attribute) == row.default, row.key
        for key, _factor in row.broker_keys:
            assert key in BROKER_SETTINGS


def test_attribute_and_key_are_inverse() -> None:
    for key in (*BROKER_SETTINGS, *TOPIC_SETTINGS):
        assert key_of(attribute_of(key)) == key


def test_kafka_4_server_properties_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KRAFT_SERVER_PROPERTIES)
    config = BrokerConfig.load(file)
    assert config.bound_listeners == (Listener("PLAINTEXT", "", 9092),)
    assert str(config.advertised_endpoint(config.bound_listeners[0], 9092)) == "localhost:9092"
    assert (config.num_network_threads, config.num_io_threads) == (3, 8)
    assert config.data_directory == Path("/tmp/kraft-combined-logs")
    assert not config.in_cluster


def test_zookeeper_era_server_properties_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(ZOOKEEPER_SERVER_PROPERTIES)
    config = BrokerConfig.load(file)
    assert config.node_id == config.broker_id == 7
    assert config.zookeeper_connect
    assert any(note.startswith("zookeeper.connection.timeout.ms is accepted and ignored") for note in config.notes)


def test_the_delay_after_failed_authentication_has_kafkas_key() -> None:
    config = BrokerConfig.load(overrides={"connection.failed.authentication.delay.ms": "250"})
    assert config.connection_failed_authentication_delay_ms == 250
    with pytest.raises(ConfigError, match="unknown setting"):
        BrokerConfig.load(overrides={"failed.authentication.delay.ms": "250"})


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.retention.ms=5\n")
    config = BrokerConfig.load(file, {"num.partitions": "4"})
    assert (config.num_partitions, config.log_retention_ms) == (4, 5)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot read the configuration file .*: No such file"):
        BrokerConfig.load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        pytest.param("num.partition", "3", "unknown setting; did you mean num.partitions?", id="near miss"),
        pytest.param("totally.else", "3", "unknown setting$", id="far miss"),
        pytest.param("num.partitions", "three", "must be a whole number, not 'three'", id="not a number"),
        pytest.param("num.partitions", "0", "must be at least 1, not 0", id="too small"),
        pytest.param("num.partitions", "99999999999", "does not fit into 32 bits", id="too large"),
        pytest.param("num.partitions", "", "must be a whole number", id="empty"),
        pytest.param("auto.create.topics.enable", "yes", "must be true or false", id="boolean"),
        pytest.param("log.cleaner.min.cleanable.ratio", "1.5", "must be at most 1", id="double"),
        pytest.param("log.cleaner.min.cleanable.ratio", "nan", "must be a finite number", id="nan"),
        pytest.param("compression.type", "brotli", "must be one of uncompressed", id="choice"),
        pytest.param("log.cleanup.policy", "compact,shred", "must be a list of compact, delete", id="list"),
        pytest.param("listeners", "127.0.0.1:9092", "must be name://host:port", id="no scheme"),
        pytest.param("listeners", "kafka://h:70000", "port 70000 is not between", id="port"),
        pytest.param("listeners", "EAST://:9092", "listener EAST has no protocol", id="unmapped"),
        pytest.param("listeners", "kafka://:1,kafka://:2", "listener name KAFKA is used twice", id="same name"),
        pytest.param("listeners", "kafka://:1,PLAINTEXT://:1", "port 1 is used twice", id="same port"),
        pytest.param("listeners", "", "contains no listener", id="none"),
        pytest.param("advertised.listeners", "kafka://0.0.0.0:9092", "not an address that clients", id="any address"),
        pytest.param("advertised.listeners", "OUT://h:9092", "must name one of the listeners KAFKA", id="unbound"),
        pytest.param("cordoned.log.dirs", "*,/a", "cannot be combined with others", id="star and directory cordoned"),
        pytest.param("cordoned.log.dirs", "/b", "/b is not in log.dirs", id="another directory cordoned"),
        pytest.param("log.dirs", "/a,/b", "must be one directory", id="two directories"),
        pytest.param("authorizer.class.name", "x.Acl", "can be loaded", id="promise of protection"),
        pytest.param("max.connections.per.ip.overrides", "127.0.0.1", "must be address:count", id="per address"),
    ],
)
def test_a_bad_setting_is_refused_by_name(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        BrokerConfig.load(None, {key: text})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({}, 7 * 24 * 3_600_000, id="default"),
        pytest.param({"log.retention.hours": "2"}, 2 * 3_600_000, id="hours"),
        pytest.param({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000, id="minutes over hours"),
        pytest.param({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4, id="ms over minutes"),
        pytest.param({"log.retention.hours": "-1"}, -1, id="for ever, not minus an hour"),
    ],
)
def test_retention_takes_the_finest_unit_given(texts: dict[str, str], expected: int) -> None:
    assert TopicConfig.resolve(BrokerConfig.load(None, texts)).retention_ms == expected


def test_topic_override_wins_over_broker_and_default() -> None:
    config = broker(log_segment_bytes=2_000_000)
    assert TopicConfig.resolve(config).segment_bytes == 2_000_000
    assert TopicConfig.resolve(config, {"segment.bytes": "65536"}).segment_bytes == 65536


def test_unknown_topic_setting_names_a_near_miss() -> None:
    with pytest.raises(ConfigError, match=r"retention\.msec: unknown topic setting; did you mean retention\.ms\?"):
        TopicConfig.resolve(BrokerConfig(), {"retention.msec": "1"})


def test_compaction_lags_are_checked_together() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms: is above"):
        TopicConfig.resolve(BrokerConfig(), {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_describe_returns_source_and_synonyms_in_order_of_precedence() -> None:
    config = broker(log_retention_minutes=5).with_dynamic({"log.retention.ms": "7"})
    topic = TopicConfig.resolve(config, {"retention.ms": "9"})
    found = entry(topic.describe(config), "retention.ms")
    assert (found.value, found.source, found.type) == ("9", ConfigSource.DYNAMIC_TOPIC, ConfigType.LONG)
    assert [(item.name, item.value, item.source) for item in found.synonyms] == [
        ("retention.ms", "9", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "7", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.minutes", "5", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert entry(topic.describe(config), "segment.bytes").is_default
    assert entry(config.describe(), "log.retention.minutes").source == ConfigSource.STATIC_BROKER
    assert entry(config.describe(), "broker.rack").value is None


def test_dynamic_changes_are_kept_apart_and_checked() -> None:
    config = broker(num_partitions=3).with_dynamic({"message.max.bytes": "2000"})
    assert (config.message_max_bytes, config.num_partitions) == (2000, 3)
    assert TopicConfig.resolve(config).max_message_bytes == 2000
    assert config.with_dynamic({}).message_max_bytes == 1048588
    with pytest.raises(ConfigError, match="cannot be changed while the broker runs"):
        config.with_dynamic({"num.partitions": "2"})
    kept = config.with_dynamic({"message.max.byte": "2", "num.replica.fetchers": "4"})
    assert (kept.message_max_bytes, len(kept.dynamic_texts)) == (1048588, 2)
    with pytest.raises(ConfigError, match="cannot be changed while the broker runs"):
        config.with_dynamic({"controller.quorum.voters": "1@h:1"})


def test_listener_without_host_advertises_the_machine_and_the_bound_port() -> None:
    config = broker(listeners="kafka://:0")
    (listener,) = config.bound_listeners
    endpoint = config.advertised_endpoint(listener, 4321)
    assert endpoint.host
    assert endpoint.host != "0.0.0.0"
    assert endpoint.port == 4321


def test_two_named_listeners_advertise_their_own_addresses() -> None:
    config = broker(
        listeners="IN://:29092,OUT://[::1]:9092",
        advertised_listeners="IN://broker:29092,OUT://[fe80::1]:0",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    )
    inside, outside = config.bound_listeners
    assert outside == Listener("OUT", "::1", 9092)
    assert str(config.advertised_endpoint(inside, 29092)) == "broker:29092"
    assert str(config.advertised_endpoint(outside, 9092)) == "[fe80::1]:9092"


def test_python_values_become_texts() -> None:
    config = broker(flush_on_acks_all=False, num_partitions=3, log_cleanup_policy=["compact", "delete"])
    assert config.flush_on_acks_all is False
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.static_texts["flush.on.acks.all"] == "false"


def test_per_address_limits_are_read() -> None:
    assert broker(max_connections_per_ip_overrides="10.0.0.1:5, [::1]:7").connections_per_ip_overrides() == {
        "10.0.0.1": 5,
        "::1": 7,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}, id="separators"),
        pytest.param("# no\n! no\n\n  a=1 # kept\n", {"a": "1 # kept"}, id="comments"),
        pytest.param("a=1,\\\n   2,\\\n   3\n", {"a": "1,2,3"}, id="continuation"),
        pytest.param("a=x\\\\\nb=1\n", {"a": "x\\", "b": "1"}, id="even backslashes do not continue"),
        pytest.param("a\\ b=c\\u0041\\t\n", {"a b": "cA\t"}, id="escapes"),
        pytest.param("a=1\r\na=2\r\n", {"a": "2"}, id="last one counts"),
        pytest.param("a\n", {"a": ""}, id="key alone"),
        pytest.param("a=b=c\n", {"a": "b=c"}, id="separator in value"),
        pytest.param("a=1\\", {"a": "1"}, id="continuation at the end"),
    ],
)
def test_properties_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_properties_with_a_broken_escape_name_the_line() -> None:
    with pytest.raises(StartupError, match=r"line 2: .u needs four"):
        parse_properties("a=1\nb=\\u00\n")


def test_a_setting_that_there_is_not_is_no_argument() -> None:
    assert BrokerConfig(num_partitions=3).num_partitions == 3
    with pytest.raises(TypeError, match="unknown setting 'num_partition'"):
        BrokerConfig(num_partition=3)


@pytest.mark.parametrize(("key", "text"), [*((key, "1") for key in sorted(REMOVED)), ("remote.storage.enable", "TRUE")])
def test_topic_keeps_what_kafka_4_refuses_and_gets_none_of_it(key: str, text: str) -> None:
    text = "true" if TOPIC_SETTINGS[key].type == ConfigType.BOOLEAN else text
    before = {key: text}
    assert TopicConfig.resolve(BrokerConfig(), before).overrides == before
    assert TopicConfig.requested(BrokerConfig(), {**before, "retention.ms": "1"}, before).retention_ms == 1
    with pytest.raises(ConfigError, match=key):
        TopicConfig.requested(BrokerConfig(), before)
    assert key in {item.name for item in TopicConfig.resolve(BrokerConfig(), before).describe(BrokerConfig())}


def test_topic_that_has_no_tiered_storage_does_not_get_it() -> None:
    with pytest.raises(ConfigError, match="must be false: tiered storage is not supported"):
        TopicConfig.requested(BrokerConfig(), {"remote.storage.enable": "true"}, {"remote.storage.enable": "false"})


def test_batches_may_be_larger_than_requests_as_in_kafka() -> None:
    config = BrokerConfig.load(None, {"message.max.bytes": "200000000", "socket.request.max.bytes": "1000000"})
    assert TopicConfig.resolve(config).max_message_bytes == 200_000_000
