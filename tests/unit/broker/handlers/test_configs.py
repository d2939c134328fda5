"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: topics, the broker, its loggers."""

import logging

import pytest

from kafkalite.broker.handlers import broker_loggers, describe_configs
from kafkalite.broker.handlers.alter_configs import APPEND, DELETE, SET, SUBTRACT
from kafkalite.broker.handlers.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.errors import ErrorCode, error_for
from kafkalite.settings import foreign
from kafkalite.settings.broker import BROKER_SETTINGS
from kafkalite.settings.client_metrics import CLIENT_METRICS_SETTINGS
from kafkalite.settings.foreign import KEPT_TOTAL_MAX
from kafkalite.settings.group import GROUP_SETTINGS
from kafkalite.settings.rows import ConfigSource, ConfigType
from kafkalite.settings.topic_settings_table import REMOVED, TOPIC_SETTINGS
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import alter_configs, incremental_alter_configs
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.kit.harness.handler_calls import NODE_ID, HandlerCalls, versions

ME = str(NODE_ID)
LOGGER = "kafkalite.broker.handlers.metadata"
DESCRIBE_VERSIONS = versions(api.DESCRIBE_CONFIGS)
REPLACE_VERSIONS = versions(api.ALTER_CONFIGS)
CHANGE_VERSIONS = versions(api.INCREMENTAL_ALTER_CONFIGS)


@pytest.fixture(autouse=True)
def _levels():
    """Log levels as they were."""
    logging.getLogger(LOGGER)  # a logger that no code has created yet has no level to put back
    before = {name: logging.getLogger(name).level for name, _ in broker_loggers.levels()}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def describe(broker, version, kind, name, keys=None, **flags):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = broker.call(api.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources=[resource], **flags))
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_message == "") == (result.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return result.error_code, {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_topic_settings(broker, version):
    code, told = describe(broker, version, TOPIC, "logs")
    assert code == 0
    assert list(told) == [key for key in TOPIC_SETTINGS if key not in REMOVED]
    own, default = told["retention.ms"], told["cleanup.policy"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == (
        "60000",
        ConfigSource.DYNAMIC_TOPIC,
        False,
        False,
    )
    assert (default.value, default.config_source) == ("delete", ConfigSource.DEFAULT)
    assert own.synonyms == []
    assert not own.documentation
    assert own.config_type == (ConfigType.LONG if version >= 3 else 0)
    assert not broker.blocked


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_keys_pick_settings_and_unknown_ones_are_left_out(broker, version):
    _, told = describe(broker, version, TOPIC, "logs", ["retention.ms", "no.such.key", "segment.bytes"])
    assert sorted(told) == ["retention.ms", "segment.bytes"]
    assert len(describe(broker, version, TOPIC, "logs", [])[1]) == len(TOPIC_SETTINGS) - len(REMOVED)


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_synonyms_show_where_a_value_could_come_from(version):
    broker = HandlerCalls(log_retention_ms="5000")
    broker.logs.create_topic("logs", 1, {"retention.ms": "60000"})
    _, told = describe(broker, version, TOPIC, "logs", ["retention.ms"], include_synonyms=True)
    synonyms = [(item.name, item.value, item.source) for item in told["retention.ms"].synonyms]
    assert synonyms[:2] == [
        ("retention.ms", "60000", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "5000", ConfigSource.STATIC_BROKER),
    ]


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS[2:])
def test_documentation_when_asked(broker, version):
    _, told = describe(broker, version, TOPIC, "logs", include_documentation=True)
    assert all(config.documentation for config in told.values())


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_broker_settings(version):
    broker = HandlerCalls(num_partitions="9")
    code, told = describe(broker, version, BROKER, ME)
    assert code == 0
    assert list(told) == list(BROKER_SETTINGS)
    partitions = told["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("9", ConfigSource.STATIC_BROKER, True)
    assert not told["log.retention.ms"].read_only


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_loggers(broker, version):
    logging.getLogger(LOGGER).setLevel(logging.DEBUG)
    code, told = describe(broker, version, BROKER_LOGGER, ME)
    assert code == 0
    assert {"kafkalite", LOGGER} <= told.keys()
    assert all(name.startswith("kafkalite") for name in told)
    assert (told[LOGGER].value, told[LOGGER].config_source) == ("DEBUG", broker_loggers.DYNAMIC_BROKER_LOGGER)


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        pytest.param(TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown-topic"),
        pytest.param(TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, id="bad-topic"),
        pytest.param(TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, id="no-topic"),
        pytest.param(BROKER, "99", ErrorCode.INVALID_REQUEST, id="other-broker"),
        pytest.param(BROKER, "me", ErrorCode.INVALID_REQUEST, id="broker-not-a-number"),
        pytest.param(BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, id="loggers-of-all-brokers"),
        pytest.param(CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, id="client-metrics-without-a-name"),
        pytest.param(GROUP, "", ErrorCode.INVALID_REQUEST, id="all-groups"),
        pytest.param(3, "x", ErrorCode.INVALID_REQUEST, id="unknown-type"),
    ],
)
def test_resources_that_cannot_be_described(broker, version, kind, name, code):
    assert describe(broker, version, kind, name) == (code, {})


def test_resources_with_the_same_settings_are_described_once(broker):
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name="logs", configuration_keys=None),
        DescribeConfigsResource(resource_type=GROUP, resource_name="a", configuration_keys=None),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="logs", configuration_keys=[]),
        DescribeConfigsResource(resource_type=GROUP, resource_name="b", configuration_keys=None),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="logs", configuration_keys=["retention.ms"]),
    ]
    results = describe_configs.handle(
        broker.context(api.DESCRIBE_CONFIGS, 4), DescribeConfigsRequest(resources=resources)
    ).results
    assert results[0].configs is results[2].configs
    assert results[1].configs is results[3].configs
    assert [config.name for config in results[4].configs] == ["retention.ms"]
    assert len(results[0].configs) > 1


def replace_all(broker, version, *resources, validate_only=False):
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    return answers(broker, api.ALTER_CONFIGS, version, request)


def change_all(broker, version, *resources, validate_only=False):
    module = incremental_alter_configs
    request = module.IncrementalAlterConfigsRequest(
        resources=[
            module.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    module.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    return answers(broker, api.INCREMENTAL_ALTER_CONFIGS, version, request)


def answers(broker, key, version, request):
    response = broker.call(key, version, request)
    assert broker.blocked
    assert [(item.resource_type, item.resource_name) for item in response.responses] == [
        (item.resource_type, item.resource_name) for item in request.resources
    ]
    assert all((item.error_message is None) == (item.error_code == 0) for item in response.responses)
    return [item.error_code for item in response.responses]


def replace(broker, version, kind, name, *configs, **flags):
    return replace_all(broker, version, (kind, name, configs), **flags)[0]


def change(broker, version, kind, name, *configs, **flags):
    return change_all(broker, version, (kind, name, configs), **flags)[0]


def own(broker, topic="logs"):
    return broker.logs.topics[topic].overrides


@pytest.mark.parametrize("version", REPLACE_VERSIONS)
def test_given_settings_replace_all_others(broker, version):
    assert replace(broker, version, TOPIC, "logs", ("segment.ms", "5"), ("cleanup.policy", "compact")) == 0
    assert own(broker) == {"segment.ms": "5", "cleanup.policy": "compact"}
    assert replace(broker, version, TOPIC, "logs") == 0
    assert own(broker) == {}


@pytest.mark.parametrize("version", CHANGE_VERSIONS)
def test_settings_are_set_and_deleted_one_by_one(broker, version):
    assert change(broker, version, TOPIC, "logs", ("segment.ms", SET, "5"), ("segment.bytes", SET, "1048576")) == 0
    assert own(broker) == {"retention.ms": "60000", "segment.ms": "5", "segment.bytes": "1048576"}
    assert change(broker, version, TOPIC, "logs", ("retention.ms", DELETE, None), ("segment.ms", DELETE, "x")) == 0
    assert own(broker) == {"segment.bytes": "1048576"}
    assert change(broker, version, TOPIC, "logs", ("no.such.key", DELETE, None)) == 0


@pytest.mark.parametrize("version", CHANGE_VERSIONS)
def test_lists_are_appended_to_and_taken_from(broker, version):
    policy = "cleanup.policy"
    assert change(broker, version, TOPIC, "logs", (policy, APPEND, "compact")) == 0
    assert own(broker)[policy] == "delete,compact"
    assert change(broker, version, TOPIC, "logs", (policy, APPEND, "compact, delete")) == 0
    assert own(broker)[policy] == "delete,compact"
    assert change(broker, version, TOPIC, "logs", (policy, SUBTRACT, "delete")) == 0
    assert own(broker)[policy] == "compact"


REFUSED = [
    pytest.param(TOPIC, "missing", [("retention.ms", "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown-topic"),
    pytest.param(TOPIC, "a b", [("retention.ms", "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, id="bad-topic"),
    pytest.param(TOPIC, "", [("retention.ms", "1")], ErrorCode.INVALID_REQUEST, id="all-topics"),
    pytest.param(TOPIC, "logs", [("no.such.key", "1")], ErrorCode.INVALID_CONFIG, id="unknown-key"),
    pytest.param(TOPIC, "logs", [("retention.ms", "soon")], ErrorCode.INVALID_CONFIG, id="bad-value"),
    pytest.param(TOPIC, "logs", [("remote.storage.enable", "true")], ErrorCode.INVALID_CONFIG, id="tiered-storage"),
    *(pytest.param(TOPIC, "logs", [(key, "1")], ErrorCode.INVALID_CONFIG, id=key) for key in sorted(REMOVED)),
    pytest.param(TOPIC, "logs", [("segment.ms", "1"), ("retention.ms", "x")], ErrorCode.INVALID_CONFIG, id="one-bad"),
    pytest.param(TOPIC, "logs", [("retention.ms", None)], ErrorCode.INVALID_REQUEST, id="null-value"),
    pytest.param(TOPIC, "logs", [("segment.ms", "1")] * 2, ErrorCode.INVALID_REQUEST, id="key-twice"),
    pytest.param(BROKER, "99", [("log.retention.ms", "1")], ErrorCode.INVALID_REQUEST, id="other-broker"),
    pytest.param(BROKER, ME, [("num.partitions", "1")], ErrorCode.INVALID_REQUEST, id="not-dynamic"),
    pytest.param(BROKER, ME, [("controller.quorum.voters", "1")], ErrorCode.INVALID_REQUEST, id="not-dynamic-in-kafka"),
    pytest.param(BROKER, ME, [("authorizer.class.name", "x")], ErrorCode.INVALID_REQUEST, id="would-promise"),
    pytest.param(BROKER, ME, [("no.such.key", "x" * 32_767)], ErrorCode.INVALID_REQUEST, id="much-to-keep"),
    pytest.param(BROKER, "", [("log.retention.ms", "x")], ErrorCode.INVALID_REQUEST, id="bad-broker-value"),
    pytest.param(CLIENT_METRICS, "x", [("interval.ms", "1")], ErrorCode.INVALID_REQUEST, id="client-metrics"),
    pytest.param(GROUP, "", [("consumer.session.timeout.ms", "1")], ErrorCode.INVALID_REQUEST, id="group"),
    pytest.param(3, "x", [], ErrorCode.INVALID_REQUEST, id="unknown-type"),
]


@pytest.mark.parametrize("name", [ME, ""], ids=["one broker", "all brokers"])
def test_names_that_mean_nothing_are_kept_up_to_a_total_size(broker, name):
    size = KEPT_TOTAL_MAX // 10
    kept = [(f"no.such.key.{n}", SET, "x" * (size - 100)) for n in range(10)]
    assert change(broker, 1, BROKER, name, *kept) == 0
    more = ("no.such.key.more", SET, "x" * 1000)
    assert change(broker, 1, BROKER, name, more) == ErrorCode.INVALID_REQUEST
    assert change(broker, 1, BROKER, name, ("log.retention.ms", SET, "60000")) == 0
    assert change(broker, 1, BROKER, name, ("no.such.key.0", DELETE, None), more) == 0


def test_more_than_is_kept_today_can_be_taken_away_step_by_step(monkeypatch, broker):
    assert change(broker, 1, BROKER, ME, ("a", SET, "x" * 900), ("b", SET, "x" * 900)) == 0
    monkeypatch.setattr(foreign, "KEPT_TOTAL_MAX", 500)
    assert change(broker, 1, BROKER, ME, ("a", SET, "x" * 901)) == ErrorCode.INVALID_REQUEST
    assert change(broker, 1, BROKER, ME, ("a", DELETE, None)) == 0
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", SET, "60000")) == 0


@pytest.mark.parametrize("version", REPLACE_VERSIONS)
@pytest.mark.parametrize(("kind", "name", "configs", "code"), REFUSED)
def test_replacement_that_is_refused_changes_nothing(broker, version, kind, name, configs, code):
    assert replace(broker, version, kind, name, *configs) == code
    assert own(broker) == {"retention.ms": "60000"}
    assert broker.services.config is broker.config


@pytest.mark.parametrize("version", CHANGE_VERSIONS)
@pytest.mark.parametrize(("kind", "name", "configs", "code"), REFUSED)
def test_change_that_is_refused_changes_nothing(broker, version, kind, name, configs, code):
    assert change(broker, version, kind, name, *[(key, SET, value) for key, value in configs]) == code
    assert own(broker) == {"retention.ms": "60000"}
    assert broker.services.config is broker.config


@pytest.mark.parametrize("version", CHANGE_VERSIONS)
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        pytest.param(("segment.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, id="append-to-number"),
        pytest.param(("segment.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG, id="subtract-from-number"),
        pytest.param(("no.such.key", APPEND, "1"), ErrorCode.INVALID_CONFIG, id="append-to-unknown"),
        pytest.param(("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST, id="append-null"),
        pytest.param(("segment.ms", 4, "1"), ErrorCode.INVALID_REQUEST, id="unknown-operation"),
    ],
)
def test_operation_that_is_refused(broker, version, operation, code):
    assert change(broker, version, TOPIC, "logs", operation) == code
    assert own(broker) == {"retention.ms": "60000"}


def test_each_resource_for_itself(broker):
    codes = change_all(
        broker,
        1,
        (TOPIC, "logs", [("segment.ms", SET, "5")]),
        (TOPIC, "missing", [("segment.ms", SET, "5")]),
        (TOPIC, "orders", [("segment.ms", SET, "6")]),
    )
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert own(broker, "orders") == {"segment.ms": "6"}


def test_resource_named_twice_is_refused_both_times(broker):
    codes = replace_all(broker, 2, (TOPIC, "logs", []), (TOPIC, "orders", [("segment.ms", "6")]), (TOPIC, "logs", []))
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert own(broker) == {"retention.ms": "60000"}


def test_validate_only_changes_nothing(broker):
    assert change(broker, 1, TOPIC, "logs", ("segment.ms", SET, "5"), validate_only=True) == 0
    assert replace(broker, 2, TOPIC, "logs", ("segment.ms", "5"), validate_only=True) == 0
    assert replace(broker, 2, TOPIC, "logs", ("segment.ms", "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", SET, "5"), validate_only=True) == 0
    assert change(broker, 1, BROKER_LOGGER, ME, (LOGGER, SET, "DEBUG"), validate_only=True) == 0
    assert own(broker) == {"retention.ms": "60000"}
    assert broker.services.config is broker.config
    assert logging.getLogger(LOGGER).level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "source"), [(ME, ConfigSource.DYNAMIC_BROKER), ("", ConfigSource.DYNAMIC_DEFAULT_BROKER)]
)
def test_broker_settings_change_while_running(broker, name, source):
    assert change(broker, 1, BROKER, name, ("log.retention.ms", SET, "5")) == 0
    assert broker.services.config.log_retention_ms == 5
    assert broker.logs.broker_overrides == {"log.retention.ms": "5"}
    described = describe(broker, 4, BROKER, ME, ["log.retention.ms"])[1]["log.retention.ms"]
    assert (described.value, described.config_source) == ("5", source)
    described = describe(broker, 4, BROKER, "", include_synonyms=True)[1]
    assert described.keys() == {"min.insync.replicas"} | ({"log.retention.ms"} if name == "" else set())
    assert {config.config_source for config in described.values()} == {ConfigSource.DYNAMIC_DEFAULT_BROKER}
    assert change(broker, 1, BROKER, name, ("log.retention.ms", DELETE, None)) == 0
    assert broker.services.config.log_retention_ms is None
    assert describe(broker, 4, BROKER, "")[1].keys() == {"min.insync.replicas"}


def test_settings_of_one_broker_stand_before_those_of_all(broker):
    assert change(broker, 1, BROKER, "", ("log.retention.ms", SET, "5"), ("min.insync.replicas", SET, "2")) == 0
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", SET, "6")) == 0
    assert broker.services.config.log_retention_ms == 6
    mine = describe(broker, 4, BROKER, ME, ["log.retention.ms"], include_synonyms=True)[1]["log.retention.ms"]
    assert [(item.value, item.source) for item in mine.synonyms[:2]] == [
        ("6", ConfigSource.DYNAMIC_BROKER),
        ("5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ]
    everybodys = describe(broker, 4, BROKER, "", include_synonyms=True)[1]
    assert {key: item.value for key, item in everybodys.items()} == {
        "log.retention.ms": "5",
        "min.insync.replicas": "2",
    }
    assert [(item.value, item.source) for item in everybodys["log.retention.ms"].synonyms] == [
        ("5", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    ]
    assert replace(broker, 2, BROKER, ME) == 0
    assert broker.services.config.log_retention_ms == 5
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", DELETE, None)) == 0
    assert broker.services.config.log_retention_ms == 5


def test_a_listeners_setting_is_one_brokers(broker):
    key = "listener.name.ssl.ssl.keystore.location"
    assert change(broker, 1, BROKER, "", (key, SET, "/nowhere")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", [ME, ""])
def test_broker_settings_that_mean_nothing_are_kept_and_never_shown(broker, name, caplog):
    values = {
        "no.such.key": "secret",
        "replica.alter.log.dirs.io.max.bytes.per.second": "2",
        "remote.log.reader.threads": "1",
    }
    assert change(broker, 1, BROKER, name, *((key, SET, value) for key, value in values.items())) == 0
    assert "'no.such.key'" in caplog.text
    assert "secret" not in caplog.text
    assert broker.logs.broker_overrides == values
    for asked in {ME, name}:
        described = describe(broker, 4, BROKER, asked, list(values), include_synonyms=True)[1]
        assert described.keys() == values.keys()
        for item in described.values():
            assert (item.value, item.is_sensitive, item.config_type) == (None, True, 0)
            assert [synonym.value for synonym in item.synonyms] == [None]
    assert replace(broker, 2, BROKER, name, ("log.retention.ms", "5")) == 0
    assert broker.logs.broker_overrides == {"log.retention.ms": "5"}


KAFKAS_DYNAMIC = [
    "config.providers",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "follower.fetch.last.tiered.offset.enable",
    "group.consumer.assignment.interval.ms",
    "group.consumer.assignor.offload.enable",
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.share.assignor.offload.enable",
    "group.streams.assignment.interval.ms",
    "group.streams.assignor.offload.enable",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "metric.reporters",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "share.coordinator.cached.buffer.max.bytes",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
]
"""Of DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS of Kafka 4.4, those that mean nothing here."""


def test_every_setting_that_kafka_changes_and_that_means_nothing_is_kept(broker):
    values = dict.fromkeys(KAFKAS_DYNAMIC, "1")
    assert change(broker, 1, BROKER, ME, *((key, SET, value) for key, value in values.items())) == 0
    assert broker.logs.broker_overrides == values
    assert change(broker, 1, BROKER, ME, *((key, DELETE, None) for key in values)) == 0
    assert broker.logs.broker_overrides == {}


@pytest.mark.parametrize(
    "name", ["remote.log.storage.system.enable", "group.coordinator.threads", "replica.lag.time.max"]
)
def test_settings_that_kafka_reads_at_its_start_are_refused(broker, name):
    assert change(broker, 1, BROKER, ME, (name, SET, "1")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["metric.reporters", "sasl.kerberos.principal.to.local.rules"])
def test_a_list_that_means_nothing_is_appended_to(broker, name):
    assert change(broker, 1, BROKER, ME, (name, APPEND, "a,b")) == 0
    assert change(broker, 1, BROKER, ME, (name, APPEND, "b,c")) == 0
    assert broker.logs.broker_overrides == {name: "a,b,c"}
    assert change(broker, 1, BROKER, ME, (name, SUBTRACT, "a,c,d")) == 0
    assert broker.logs.broker_overrides == {name: "b"}


@pytest.mark.parametrize("name", ["remote.log.reader.threads", "no.such.key"])
def test_nothing_is_appended_to_what_is_no_list(broker, name):
    assert change(broker, 1, BROKER, ME, (name, SET, "1")) == 0
    for operation in (APPEND, SUBTRACT):
        assert change(broker, 1, BROKER, ME, (name, operation, "2")) == ErrorCode.INVALID_CONFIG
    assert broker.logs.broker_overrides == {name: "1"}


def test_no_more_names_that_mean_nothing_are_kept_than_there_is_room_for(broker):
    many = [(f"no.such.{number}", SET, "1") for number in range(1000)]
    assert change(broker, 1, BROKER, ME, *many) == 0
    assert change(broker, 1, BROKER, ME, ("one.more", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", SET, "5")) == 0


def test_storage_failure_is_the_resources_error(broker):
    broker.logs.failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    assert change(broker, 1, TOPIC, "logs", ("segment.ms", SET, "5")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert change(broker, 1, BROKER, ME, ("log.retention.ms", SET, "5")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.services.config is broker.config


@pytest.mark.parametrize(
    ("level", "number"), [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)]
)
def test_logger_level_is_set_and_removed(broker, level, number):
    assert change(broker, 1, BROKER_LOGGER, ME, (LOGGER, SET, level)) == 0
    assert logging.getLogger(LOGGER).level == number
    assert describe(broker, 4, BROKER_LOGGER, ME, [LOGGER])[1][LOGGER].value == level
    assert change(broker, 1, BROKER_LOGGER, ME, (LOGGER, DELETE, None)) == 0
    assert logging.getLogger(LOGGER).level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        pytest.param(ME, ("kafkalite.nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG, id="unknown-logger"),
        pytest.param(ME, ("asyncio", SET, "INFO"), ErrorCode.INVALID_CONFIG, id="logger-of-others"),
        pytest.param(ME, (LOGGER, SET, "LOUD"), ErrorCode.INVALID_CONFIG, id="unknown-level"),
        pytest.param(ME, (LOGGER, APPEND, "INFO"), ErrorCode.INVALID_REQUEST, id="append"),
        pytest.param(ME, ("kafkalite", DELETE, None), ErrorCode.INVALID_REQUEST, id="remove-root"),
        pytest.param("99", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST, id="other-broker"),
        pytest.param("", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST, id="all-brokers"),
    ],
)
def test_logger_change_that_is_refused(broker, name, operation, code):
    level = logging.getLogger("kafkalite").level
    assert change(broker, 1, BROKER_LOGGER, name, ("kafkalite", SET, "ERROR"), operation) in (code, 42)
    assert change(broker, 1, BROKER_LOGGER, name, operation) == code
    assert logging.getLogger("kafkalite").level == level


def test_loggers_have_no_replacing_change(broker):
    assert replace(broker, 2, BROKER_LOGGER, ME, (LOGGER, "INFO")) == ErrorCode.INVALID_REQUEST


def test_level_names():
    assert [broker_loggers.level_name(level) for level in (1, 5, 10, 15, 30, 50, 51, 99)] == [
        "TRACE",
        "TRACE",
        "DEBUG",
        "INFO",
        "WARN",
        "FATAL",
        "OFF",
        "OFF",
    ]


@pytest.mark.parametrize(
    ("version", "kinds", "expected"),
    [
        pytest.param(0, [], [], id="v0-client-metrics-only"),
        pytest.param(1, [], [(TOPIC, "logs"), (TOPIC, "orders"), (BROKER, ME), (BROKER_LOGGER, ME)], id="v1-all"),
        pytest.param(1, [TOPIC], [(TOPIC, "logs"), (TOPIC, "orders")], id="v1-topics"),
        pytest.param(1, [GROUP, CLIENT_METRICS], [], id="v1-none-of-these"),
    ],
)
def test_list_config_resources(broker, version, kinds, expected):
    request = ListConfigResourcesRequest(resource_types=kinds)
    response = broker.call(api.LIST_CONFIG_RESOURCES, version, request)
    assert response.error_code == 0
    assert [(item.resource_type, item.resource_name) for item in response.config_resources] == expected


def test_groups_with_settings_of_their_own_are_listed(broker):
    assert change(broker, 1, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    assert change(broker, 1, GROUP, "h", ("consumer.session.timeout.ms", DELETE, None)) == 0
    response = broker.call(api.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[GROUP]))
    assert [item.resource_name for item in response.config_resources] == ["g"]


def test_list_config_resources_of_an_unknown_type(broker):
    response = broker.call(api.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[TOPIC, 3]))
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def of_group(broker, name="g"):
    """Return the settings set on the group itself."""
    code, told = describe(broker, 4, GROUP, name)
    assert code == 0
    return {key: item.value for key, item in told.items() if item.config_source == ConfigSource.GROUP}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_group_settings(version):
    broker = HandlerCalls(group_consumer_heartbeat_interval_ms="7000")
    assert change(broker, 1, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    code, told = describe(broker, version, GROUP, "g", include_synonyms=True)
    assert (code, told.keys()) == (0, GROUP_SETTINGS.keys())
    session, beats = told["consumer.session.timeout.ms"], told["consumer.heartbeat.interval.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", ConfigSource.GROUP, False)
    assert (beats.value, beats.config_source) == ("7000", ConfigSource.STATIC_BROKER)
    assert {
        key: [(one.name, one.value, one.source) for one in told[key].synonyms]
        for key in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.session.timeout.ms")
    } == {
        "consumer.session.timeout.ms": [
            ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
            ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
        ],
        "consumer.heartbeat.interval.ms": [
            ("group.consumer.heartbeat.interval.ms", "7000", ConfigSource.STATIC_BROKER),
            ("group.consumer.heartbeat.interval.ms", "5000", ConfigSource.DEFAULT),
        ],
        "share.session.timeout.ms": [("group.share.session.timeout.ms", "45000", ConfigSource.DEFAULT)],
    }
    assert describe(broker, version, GROUP, "nobody")[0] == 0


def test_group_settings_are_replaced_and_taken_away(broker):
    assert change(broker, 1, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    assert replace(broker, 2, GROUP, "g", ("consumer.heartbeat.interval.ms", "6000")) == 0
    assert of_group(broker) == {"consumer.heartbeat.interval.ms": "6000"}
    assert change(broker, 1, GROUP, "g", ("share.isolation.level", SET, "read_committed"), validate_only=True) == 0
    assert change(broker, 1, GROUP, "g", ("consumer.heartbeat.interval.ms", DELETE, None)) == 0
    assert (of_group(broker), broker.logs.metadata.group_configs) == ({}, {})


@pytest.mark.parametrize(
    ("key", "operation", "value", "code"),
    [
        ("consumer.session.timeout.ms", SET, "44999", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", SET, "60001", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", SET, "soon", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", SET, "4999", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", SET, "15001", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", SET, "by_duration:", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", SET, "by_duration:PT", ErrorCode.INVALID_CONFIG),
        ("share.isolation.level", SET, "none", ErrorCode.INVALID_CONFIG),
        ("streams.num.standby.replicas", SET, "3", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "1", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", SET, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_group_setting_that_is_refused_changes_nothing(broker, key, operation, value, code):
    assert change(broker, 1, GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:P1DT2H")) == 0
    assert change(broker, 1, GROUP, "g", (key, operation, value)) == code
    assert of_group(broker) == {"share.auto.offset.reset": "by_duration:P1DT2H"}


def test_group_session_that_is_not_longer_than_its_heartbeats_is_refused():
    broker = HandlerCalls(group_consumer_max_heartbeat_interval_ms="50000")
    changed = [("consumer.session.timeout.ms", SET, "46000"), ("consumer.heartbeat.interval.ms", SET, "46000")]
    assert change(broker, 1, GROUP, "g", *changed) == ErrorCode.INVALID_CONFIG
    assert of_group(broker) == {}


def of_client_metrics(broker, name="every"):
    """Return the settings set on the client-metrics subscription itself."""
    code, told = describe(broker, 4, CLIENT_METRICS, name)
    assert code == 0
    return {key: item.value for key, item in told.items() if item.config_source == ConfigSource.CLIENT_METRICS}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_client_metrics_settings(broker, version):
    assert change(broker, 1, CLIENT_METRICS, "every", ("metrics", SET, " a.b , c.")) == 0
    code, told = describe(broker, version, CLIENT_METRICS, "every", include_synonyms=True)
    assert (code, told.keys()) == (0, CLIENT_METRICS_SETTINGS.keys())
    metrics, interval = told["metrics"], told["interval.ms"]
    assert (metrics.value, metrics.config_source, metrics.read_only) == ("a.b,c.", ConfigSource.CLIENT_METRICS, False)
    assert [(one.value, one.source) for one in metrics.synonyms] == [("a.b,c.", ConfigSource.CLIENT_METRICS)]
    assert (interval.value, interval.config_source, interval.synonyms) == ("300000", ConfigSource.DEFAULT, [])
    assert describe(broker, version, CLIENT_METRICS, "nobody")[0] == 0


def test_client_metrics_are_listed_until_nothing_is_set(broker):
    def listed(version, *kinds):
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        resources = broker.call(api.LIST_CONFIG_RESOURCES, version, request).config_resources
        return [(item.resource_type, item.resource_name) for item in resources if item.resource_type == CLIENT_METRICS]

    assert change(broker, 1, CLIENT_METRICS, "b", ("metrics", SET, "")) == 0
    assert replace(broker, 2, CLIENT_METRICS, "a", ("interval.ms", "100")) == 0
    both = [(CLIENT_METRICS, "a"), (CLIENT_METRICS, "b")]
    assert (listed(1, CLIENT_METRICS), listed(1)) == (both, both)
    request = ListConfigResourcesRequest()
    assert [item.resource_name for item in broker.call(api.LIST_CONFIG_RESOURCES, 0, request).config_resources] == [
        "a",
        "b",
    ]
    assert change(broker, 1, CLIENT_METRICS, "b", ("metrics", DELETE, None)) == 0
    assert replace(broker, 2, CLIENT_METRICS, "a") == 0
    assert change(broker, 1, CLIENT_METRICS, "nobody", ("metrics", DELETE, None)) == 0
    assert (listed(1), broker.logs.metadata.client_metrics) == ([], {})


@pytest.mark.parametrize(
    ("key", "operation", "value", "code"),
    [
        ("interval.ms", SET, "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", SET, "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", SET, "soon", ErrorCode.INVALID_CONFIG),
        ("interval.ms", SET, "", ErrorCode.INVALID_CONFIG),
        ("interval.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
        ("metrics", APPEND, "a.", ErrorCode.INVALID_CONFIG),
        ("match", SUBTRACT, "client_id=a.*", ErrorCode.INVALID_CONFIG),
        ("push.interval.ms", SET, "1000", ErrorCode.INVALID_REQUEST),
        ("match", SET, "client_id", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=a,", ErrorCode.INVALID_CONFIG),
        ("match", SET, "colour=red", ErrorCode.INVALID_CONFIG),
        ("match", SET, "=red", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=(", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=(?=a)", ErrorCode.INVALID_CONFIG),
        ("match", SET, "client_id=((a{1000}){1000}){1000}", ErrorCode.INVALID_CONFIG),
        ("match", SET, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_client_metrics_setting_that_is_refused_changes_nothing(broker, key, operation, value, code):
    assert change(broker, 1, CLIENT_METRICS, "every", ("match", SET, "client_id=a.*")) == 0
    assert change(broker, 1, CLIENT_METRICS, "every", (key, operation, value)) == code
    assert change(broker, 1, CLIENT_METRICS, "every", ("metrics", SET, "*"), validate_only=True) == 0
    assert of_client_metrics(broker) == {"match": "client_id=a.*"}
