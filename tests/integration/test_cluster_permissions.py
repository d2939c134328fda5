"""Authentication and ACLs at a cluster's broker. The controller is scripted."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.client.errors import ClientError
from kafkalite.client.security import Security
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.security.scram import new_credential
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.wire.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkalite.wire.protocol.messages.envelope import EnvelopeResponse
from kafkalite.wire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.clustered import cluster_settings, journal_operations, member_of
from tests.kit.processes.broker import wait_until

WAIT_S = 60
PASSWORD = "correct horse"
IDS = {"orders": bytes(range(16)), "secrets": bytes(range(1, 17))}


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        scripted.append(*(types.TopicRecord(name=name, topic_id=number) for name, number in IDS.items()))
        yield scripted


def user(name: str, mechanism: str = "SCRAM-SHA-256") -> types.UserScramCredentialRecord:
    kept = new_credential(mechanism, PASSWORD)
    return types.UserScramCredentialRecord(
        name=name,
        mechanism={"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}[mechanism],
        salt=kept.salt,
        stored_key=kept.stored_key,
        server_key=kept.server_key,
        iterations=kept.iterations,
    )


def rule(acl: Acl) -> types.AccessControlEntryRecord:
    return types.AccessControlEntryRecord(
        id=uuid.uuid4().bytes,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def may_read(name: str, permission: AclPermission = AclPermission.ALLOW, who: str = "User:ann") -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, who, "*", AclOperation.READ, permission)


def secured(controller: ScriptedController, directory: Path, **more: object) -> dict[str, object]:
    return {
        **cluster_settings(controller.address, directory),
        "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        **more,
    }


def connect(broker: Broker, name: str = "ann", mechanism: str = "SCRAM-SHA-256") -> Connection:
    security = Security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": PASSWORD,
        }
    )
    endpoint = broker.endpoints["SASL"]
    return Connection.connect(endpoint.host, endpoint.port, client_id="test", security=security)


def codes(connection: Connection, *names: str) -> dict[str, int]:
    asked = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    return {each.name: each.error_code for each in connection.request(api.METADATA, request).topics}


def test_users_of_the_cluster_sign_in_and_its_rules_hold(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(user("ann"), user("root", "SCRAM-SHA-512"), rule(may_read("orders")))
    with Broker(secured(controller, tmp_path)) as broker:
        connection = connect(broker)
        assert connection.features["metadata.version"] == 27
        assert not connection.supports(api.DESCRIBE_QUORUM)  # which that controller does not serve
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes(connection, "orders", "secrets", "none") == {"orders": 0, "secrets": denied, "none": denied}
        told = connection.request(api.METADATA, MetadataRequest(topics=None)).topics
        assert [each.name for each in told] == ["orders"]
        by_id = [MetadataRequestTopic(name=None, topic_id=number) for number in IDS.values()]
        told = connection.request(api.METADATA, MetadataRequest(topics=by_id)).topics
        assert [(each.name, each.error_code) for each in told] == [("orders", 0), (None, denied)]
        asked = [DescribeConfigsResource(resource_type=2, resource_name="orders")]
        (refused,) = connection.request(api.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=asked)).results
        assert refused.error_code == denied
        connection.close()
        root = connect(broker, "root", "SCRAM-SHA-512")
        assert codes(root, "orders", "secrets") == {"orders": 0, "secrets": 0}
        root.close()
        plain = connect(broker, "ann", "PLAIN")
        assert codes(plain, "orders") == {"orders": 0}
        plain.close()
        assert controller.requests(api.ENVELOPE) == []
    assert journal_operations(tmp_path) <= {"format", "secret"}


def test_changes_of_users_and_rules_hold_at_once_and_whole(controller: ScriptedController, tmp_path: Path) -> None:
    entry = rule(may_read("orders"))
    controller.append(user("ann"), entry, rule(may_read("orders")))  # said twice, under two ids
    with Broker(secured(controller, tmp_path)) as broker:
        connection = connect(broker)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        image = lambda: member_of(broker).image  # noqa: E731  # the present one
        controller.append(types.RemoveAccessControlEntryRecord(id=entry.id), rule(may_read("secrets")))
        wait_until(lambda: codes(connection, "secrets")["secrets"] == 0, WAIT_S, "one more may be read")
        assert codes(connection, "orders") == {"orders": 0}  # by the other id
        no_one = Acl(*may_read("*", AclPermission.DENY))._replace(operation=AclOperation.ALL)
        controller.append(rule(no_one), rule(may_read("orders")._replace(operation=AclOperation.ALL)))
        wait_until(lambda: codes(connection, "secrets")["secrets"] == denied, WAIT_S, "none may be read")
        assert codes(connection, "orders") == {"orders": denied}
        controller.append(*(types.RemoveAccessControlEntryRecord(id=number) for number in image().acls))
        controller.append(types.RemoveUserScramCredentialRecord(name="ann", mechanism=1))
        wait_until(lambda: not image().credentials, WAIT_S, "the user is gone")
        assert codes(connection, "orders") == {"orders": denied}
        connection.close()
        with pytest.raises(ClientError):
            connect(broker)
        assert len(broker._parts.services.authorizer) == 0


def test_what_the_controller_answers_is_not_asked_of_the_rules_here(
    controller: ScriptedController, tmp_path: Path
) -> None:
    controller.append(user("ann"))
    with Broker(secured(controller, tmp_path)) as broker:
        connection = connect(broker)
        (made,) = connection.request(api.CREATE_TOPICS, CreateTopicsRequest(topics=[CreatableTopic(name="new")])).topics
        assert made.error_code == 0  # this controller's answer, which checks the forwarded principal
        (envelope,) = controller.requests(api.ENVELOPE)
        assert envelope.request_principal == b"\0\0\x05User\x04ann\0\0"
        connection.close()
        with Client(broker.bootstrap_servers) as anonymous, pytest.raises(KafkaError) as refused:
            anonymous.acls.find()
        assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_rules_are_there_before_clients_are_served(controller: ScriptedController, tmp_path: Path) -> None:
    rules = [rule(may_read(f"t{number}")) for number in range(2000)]
    controller.append(user("ann"), rule(may_read("orders", AclPermission.DENY)), *rules)
    given = secured(controller, tmp_path, **{"allow.everyone.if.no.acl.found": "true"})
    with Broker(given) as broker:
        connection = connect(broker)
        assert codes(connection, "orders", "secrets") == {
            "orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "secrets": 0,
        }
        connection.close()


def test_rule_that_is_not_understood_stops_the_broker(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(secured(controller, tmp_path)) as broker:
        entry = rule(may_read("orders"))
        entry.operation = 99
        controller.append(entry)
        assert broker.failed.wait(WAIT_S)


def test_acls_without_an_authorizer_are_logged(
    controller: ScriptedController, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controller.append(rule(may_read("orders")))
    with Broker(cluster_settings(controller.address, tmp_path)) as broker:
        assert "set authorizer.class.name" in caplog.text
        with Client(broker.bootstrap_servers) as client, pytest.raises(KafkaError) as refused:
            client.acls.find()
        assert refused.value.code == ErrorCode.SECURITY_DISABLED


def test_tokens_are_the_controllers_for_those_who_are_known(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(user("ann"))
    requests = {
        api.CREATE_DELEGATION_TOKEN: CreateDelegationTokenRequest(),
        api.RENEW_DELEGATION_TOKEN: RenewDelegationTokenRequest(hmac=b"h"),
        api.EXPIRE_DELEGATION_TOKEN: ExpireDelegationTokenRequest(hmac=b"h"),
    }
    with Broker(secured(controller, tmp_path)) as broker:
        endpoint = broker.endpoints["PLAINTEXT"]
        anonymous = Connection.connect(endpoint.host, endpoint.port, client_id="test")
        for key, request in requests.items():
            answer = anonymous.request(key, request)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        anonymous.close()
        assert controller.requests(api.ENVELOPE) == []
        connection = connect(broker)
        refusal = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        for key, request in requests.items():
            controller.answers[api.ENVELOPE].append(lambda _request: refusal)
            assert connection.request(key, request).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert len(controller.requests(api.ENVELOPE)) == 3
        told = connection.request(api.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest())
        assert told.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        connection.close()


def test_librdkafka_signs_in_and_sees_what_it_may(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(user("ann", "SCRAM-SHA-512"), rule(may_read("orders")))
    with Broker(secured(controller, tmp_path)) as broker:
        given = {
            "bootstrap.servers": str(broker.endpoints["SASL"]),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": PASSWORD,
        }
        seen = AdminClient(given).list_topics(timeout=WAIT_S)
        assert set(seen.topics) == {"orders"}
        assert set(seen.brokers) == {7}
        quiet = {"logger": silent_logger(), "socket.connection.setup.timeout.ms": 2000}
        with pytest.raises(KafkaException):
            AdminClient({**given, **quiet, "sasl.password": "wrong"}).list_topics(timeout=3)


def silent_logger() -> logging.Logger:
    quiet = logging.getLogger("librdkafka of a test")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet
