"""A client without permissions learns nothing, and can write to the log only its own text, on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.wire.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from tests.kit.harness.acl_broker import ADMIN, AclBroker
from tests.kit.harness.sasl_broker import RawClient, plain_token
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

NOTHING, TOPIC, BROKER = 0, 2, 4
FORGED = (
    'x"\r\n2030-01-01T00:00:00.000Z ERROR   forged a line of its own\x1b[2J\x1b]0;title\x07\x9b31m\u2028\u202e{"a":1}'
)


def settings_of(kind: int, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)])


def learns(broker: AclBroker, who: str) -> dict[str, tuple[int, int]]:
    """Return API → (error code, the number of items returned)."""

    def ask(key: int, version: int, request: object) -> Any:
        return broker.ask(who, key, version, request)

    groups = ask(api.LIST_GROUPS, 4, ListGroupsRequest())
    transactions = ask(api.LIST_TRANSACTIONS, 1, ListTransactionsRequest())
    topic = ask(api.DESCRIBE_CONFIGS, 4, settings_of(TOPIC, "secret")).results[0]
    node = ask(api.DESCRIBE_CONFIGS, 4, settings_of(BROKER, "1")).results[0]
    directories = ask(api.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
    wanted = DescribeProducersRequest(topics=[TopicRequest(name="secret", partition_indexes=[0])])
    producers = ask(api.DESCRIBE_PRODUCERS, 0, wanted).topics[0].partitions[0]
    return {
        "groups": (groups.error_code, len(groups.groups)),
        "transactions": (transactions.error_code, len(transactions.transaction_states)),
        "settings of a topic": (topic.error_code, len(topic.configs)),
        "settings of the broker": (node.error_code, len(node.configs)),
        "directories": (directories.error_code, len(directories.results)),
        "producers": (producers.error_code, len(producers.active_producers)),
    }


def test_a_stranger_learns_of_no_group_transaction_setting_directory_or_producer(tmp_path: Path) -> None:
    with AclBroker(tmp_path) as broker:
        broker.make_topic("secret")
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joining = JoinGroupRequest(
            group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocol_type="x", protocols=protocols
        )
        broker.ask(ADMIN, api.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g", key_type=0))
        assert broker.ask(ADMIN, api.JOIN_GROUP, 3, joining).error_code == 0
        begun = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        assert broker.ask(ADMIN, api.INIT_PRODUCER_ID, 3, begun).error_code == 0
        told = learns(broker, ADMIN)
        assert told["groups"] == told["transactions"] == (0, 1)
        assert all(code == 0 for code, _ in told.values())
        assert min(told[what][1] for what in ("settings of a topic", "settings of the broker", "directories")) > 0
        for stranger in ("", "nobody"):
            assert learns(broker, stranger) == {
                "groups": (0, NOTHING),
                "transactions": (0, NOTHING),
                "settings of a topic": (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOTHING),
                "settings of the broker": (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOTHING),
                "directories": (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOTHING),
                "producers": (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOTHING),
            }


def test_any_client_id_gives_one_short_log_line(tmp_path: Path) -> None:
    plain, sasl = free_port(), free_port()
    command = (*BrokerProcess.command, "--log-level", "debug")
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        "request.slow.log.ms": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with BrokerProcess(tmp_path, settings, command=command) as broker:
        for text in (FORGED, FORGED * 300):
            with TypedConnection(plain) as client:
                client.client_id = text
                hello = ApiVersionsRequest(client_software_name=text, client_software_version=text)
                assert client.ask(api.API_VERSIONS, 3, hello).error_code == ErrorCode.INVALID_REQUEST
                joining = JoinGroupRequest(
                    group_id=text,
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=60_000,
                    protocol_type=text,
                    protocols=[JoinGroupRequestProtocol(name=text, metadata=b"")],
                )
                client.ask(api.JOIN_GROUP, 3, joining)
                client.ask(api.INIT_PRODUCER_ID, 3, InitProducerIdRequest(transactional_id=text))
            with RawClient(sasl) as stranger:
                stranger.handshake("PLAIN")
                stranger.authenticate(plain_token(text, text))
            with RawClient(sasl) as stranger:
                stranger.handshake(text)
        wait_until(lambda: broker.log().count("PLAIN") >= 1, 60, "the refusals to be in the log")
        text = broker.log()
    assert text.count("forged a line of its own") > 3
    assert not [line for line in text.split("\n") if line.startswith("2030")]
    assert not {"\r", "\x1b", "\x07", "\x9b", "\u2028", "\u202e"} & {*text}
    assert max(map(len, text.split("\n"))) < 5_000
