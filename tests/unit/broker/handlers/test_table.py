"""The API table: the broker serves each API it advertises, and each row has a handler."""

import re
from pathlib import Path

import pytest

from kafkalite.broker.handlers import costs, metadata, table
from kafkalite.broker.telemetry.clients import ClientMetrics
from kafkalite.errors import ErrorCode
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.harness.handler_calls import NODE_ID, versions

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "protocol.md"
LINE = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|", re.MULTILINE)
ADVERTISED = {row.name: (row.advertised, row.newest) for row in table.ROWS}


def test_table_is_what_the_documentation_says():
    told = [
        (int(key), name, int(oldest), int(newest or oldest))
        for key, name, oldest, newest in LINE.findall(DOCUMENT.read_text(encoding="utf-8"))
    ]
    assert told == [(row.key, row.name, row.oldest, row.newest) for row in table.ROWS]


def test_only_produce_is_advertised_below_what_is_served():
    assert [(row.name, row.advertised) for row in table.ROWS if row.advertised != row.oldest] == [("Produce", 0)]


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
def test_row_leads_to_a_handler(row):
    for function in (row.handler, row.blocks):
        assert callable(function.load() if isinstance(function, table.LazyFunction) else function)
    assert (row.handler is table.served_in_c) == (row.key in (api.PRODUCE, api.FETCH))
    assert not row.serves(row.oldest - 1)
    assert not row.serves(row.newest + 1)


def test_row_calls_its_functions_directly_once_they_are_loaded():
    names = {"handler": "metadata:handle", "blocks": "metadata:needs_blocking", "unnamed": "costs:metadata"}
    row = table.Row(api.METADATA, 0, 13, **{name: table.LazyFunction(path) for name, path in names.items()})
    table.call_directly((row,))
    for name in names:
        getattr(row, name).load()
    assert (row.handler, row.blocks, row.unnamed) == (metadata.handle, metadata.needs_blocking, costs.metadata)


@pytest.mark.parametrize("version", versions(api.API_VERSIONS))
def test_api_versions_returns_the_table(broker, version):
    response = broker.call(api.API_VERSIONS, version, software_request(version))
    assert response.error_code == ErrorCode.NONE
    told = {api.APIS[row.api_key].name: (row.min_version, row.max_version) for row in response.api_keys}
    assert told == {name: bounds for name, bounds in ADVERTISED.items() if name not in TELEMETRY}
    supported, finalized, epoch = features_of(response)
    wide = [(name, *levels) for name, levels in FEATURES.items()]
    assert supported == (
        {3: [("metadata.version", *FEATURES["metadata.version"])]}.get(version, wide) if version >= 3 else []
    )
    levels = {**{name: newest for name, (_, newest) in FEATURES.items()}, "metadata.version": 27}
    in_force = [(name, level, level) for name, level in levels.items()]
    assert (finalized, epoch) == ((in_force, 3) if version >= 3 else ([], -1))
    assert not broker.blocked


TELEMETRY = {"GetTelemetrySubscriptions", "PushTelemetry"}


@pytest.mark.parametrize("version", versions(api.API_VERSIONS))
def test_telemetry_is_advertised_where_metrics_are_served(broker, version):
    broker.services.client_metrics = ClientMetrics(dict, lambda: 1000, broker.clock)
    response = broker.call(api.API_VERSIONS, version, software_request(version))
    told = {api.APIS[row.api_key].name: (row.min_version, row.max_version) for row in response.api_keys}
    assert told == ADVERTISED
    software = (broker.connection.software_name, broker.connection.software_version)
    assert software == (("apache-kafka-java", "4.1.0") if version >= 3 else ("", ""))


FEATURES = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 33),
    "transaction.version": (0, 2),
}


def features_of(response):
    supported = [(row.name, row.min_version, row.max_version) for row in response.supported_features]
    finalized = [(row.name, row.min_version_level, row.max_version_level) for row in response.finalized_features]
    return supported, finalized, response.finalized_features_epoch


@pytest.mark.parametrize(
    ("name", "number", "reads"),
    [
        ("librdkafka", "2.0.2", False),
        ("librdkafka", "v1.9.0", False),
        ("librdkafka", "2.1.1-PRE1-dirty", False),
        ("librdkafka", "2.2.0", True),
        ("librdkafka", "2.11.1", True),
        ("librdkafka", "10.0.0", True),
        ("confluent-kafka-python", "2.1.0-librdkafka-2.1.0", False),
        ("confluent-kafka-python", "2.16.1-librdkafka-2.16.0", True),
        ("apache-kafka-java", "1.0.0", True),
        ("kgo", "unknown", True),
    ],
)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_librdkafka_that_misreads_tagged_fields_gets_no_features(broker, version, name, number, reads):
    response = broker.call(api.API_VERSIONS, version, software_request(version, name, number))
    assert bool(response.finalized_features) == reads
    assert (response.finalized_features_epoch >= 0) == reads
    assert len(response.api_keys) == len(table.ROWS) - len(TELEMETRY)


def software_request(version, name="apache-kafka-java", number="4.1.0"):
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(client_software_name=name, client_software_version=number)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param("", "1", id="no-name"),
        pytest.param("a", "", id="no-version"),
        pytest.param("-a", "1", id="leading-dash"),
        pytest.param("a", "1.", id="trailing-dot"),
        pytest.param("a b", "1", id="blank"),
        pytest.param("a", "1\n", id="newline"),
        pytest.param("ä", "1", id="not-ascii"),
    ],
)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_client_software_that_is_no_name_is_refused(broker, version, name, number):
    response = broker.call(api.API_VERSIONS, version, software_request(version, name, number))
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        pytest.param("the-cluster", NODE_ID, ErrorCode.NONE, id="this-broker"),
        pytest.param(None, -1, ErrorCode.NONE, id="any-broker"),
        pytest.param("the-cluster", NODE_ID + 1, ErrorCode.REBOOTSTRAP_REQUIRED, id="another-node"),
        pytest.param("another", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED, id="another-cluster"),
        pytest.param("", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED, id="empty-cluster"),
        pytest.param("the-cluster", -1, ErrorCode.INVALID_REQUEST, id="cluster-alone"),
        pytest.param(None, NODE_ID, ErrorCode.INVALID_REQUEST, id="node-alone"),
    ],
)
def test_a_client_that_means_another_broker_is_refused(broker, cluster_id, node_id, code):
    request = software_request(5)
    request.cluster_id, request.node_id = cluster_id, node_id
    response = broker.call(api.API_VERSIONS, 5, request)
    assert (response.error_code, bool(response.api_keys)) == (code, code == ErrorCode.NONE)
    assert bool(broker.connection.software_name) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("name", ["a", "librdkafka", "sarama", "a.b-c", "9"])
def test_client_software_names_in_use_are_accepted(broker, name):
    response = broker.call(api.API_VERSIONS, 3, software_request(3, name))
    assert response.error_code == ErrorCode.NONE


def test_unknown_api_versions_version_is_answered_in_v0():
    frame = table.unsupported_api_versions(5)
    assert header.decode_response_header(api.API_VERSIONS, 0, frame[4:]) == (5, 4)
    response = protocol.decode_response(api.API_VERSIONS, 0, frame[8:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = response.api_keys
    assert (row.api_key, row.min_version, row.max_version) == (api.API_VERSIONS, 0, 5)


def test_request_that_names_far_too_many_partitions_is_refused():
    names = MetadataRequest(topics=[MetadataRequestTopic(name="t") for _ in range(60)])
    body = protocol.encode_request(api.METADATA, 4, names)
    row = table.find(api.METADATA)
    assert len(row.decode(4, body, 13).topics) == 60
    with pytest.raises(protocol.DecodeError, match="too many items"):
        row.decode(4, body, 12)


def test_unknown_key_has_no_row():
    assert table.find(9999) is None
