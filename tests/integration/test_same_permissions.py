"""kafkalite gives Apache Kafka 4.1's responses with and without permission: every API, every version, name and id.

Both have the same ACLs and the same topics, groups and transactional ids; the same clients send the requests, each with
its certificate. DIFFERENT lists the intended differences with the reason. Slow: Kafka takes seconds to start.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.broker.handlers import table
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.kit.checkers.permission_questions import ASKERS, GROUPS, PRESENT_TOPICS, RULES, TRANSACTIONS, every, versions
from tests.kit.checkers.side_by_side import TIMEOUT_S, Side, comparable
from tests.kit.harness.acl_broker import creation
from tests.kit.harness.certificates import Authority
from tests.kit.processes.apache_kafka import ApacheKafka, NotAvailable, jars
from tests.kit.processes.broker import free_port, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DIFFERENT = {
    "users": "Kafka closes the connection of whoever may not, where all users are asked for",
    "versions": "each serves versions of its own",
    "rules of no kind": "Kafka fails altogether, with UNKNOWN_SERVER_ERROR for every rule of the request",
}
"""Label → why the answers differ on purpose."""


def without_chance(answer: Any) -> Any:
    """An answer in the order of its texts, without the id that Kafka draws for a topic it does not make, and without
    the leader that it names to who is none: here there is no other."""
    if isinstance(answer, dict):
        made = "topic_config_error_code" in answer
        fields = {name: without_chance(value) for name, value in answer.items() if name != "current_leader"}
        return {**fields, "topic_id": "unmade"} if made else fields
    if isinstance(answer, list):
        return sorted((without_chance(item) for item in answer), key=repr)
    return answer


@dataclass
class Sides(Side):
    """One of the two brokers, as one of several clients: anonymous on the plain port, else with a certificate."""

    tls_port: int = 0
    certificates: dict[str, ssl.SSLContext] = field(default_factory=dict)
    asker: str = ""

    def _connect(self) -> socket.socket:
        if not self.asker:
            return super()._connect()
        plain = socket.create_connection(("127.0.0.1", self.tls_port), TIMEOUT_S)
        return self.certificates[self.asker].wrap_socket(plain, server_hostname="127.0.0.1")

    def as_(self, asker: str) -> Sides:
        return Sides(self.port, self.ids, self.producers, self.tls_port, self.certificates, asker)


def contexts(authority: Authority, authority_file: Path, directory: Path) -> dict[str, ssl.SSLContext]:
    found = {}
    for name in ASKERS:
        context = ssl.create_default_context(cafile=str(authority_file))
        context.load_cert_chain(str(authority.issue(name, client=True).write_pem(directory / f"{name}.pem")))
        found[name] = context
    return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sides, Sides]]:
    try:
        jars()
    except NotAvailable as missing:
        pytest.skip(f"PERMISSIONS NOT COMPARED WITH APACHE KAFKA: {missing}")
    directory = tmp_path_factory.mktemp("permissions")
    authority = Authority()
    authority_file = authority.write_pem(directory / "authority.pem")
    server_file = authority.issue("server").write_pem(directory / "server.pem")
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority_file),
        "ssl.client.auth": "required",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    }
    certificates = contexts(authority, authority_file, directory)
    kafka = ApacheKafka(directory / "kafka")
    tls_port = free_port()
    plain = f"PLAINTEXT://127.0.0.1:{kafka.port},SSL://127.0.0.1:{tls_port}"
    kafka.settings = {
        **settings,
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": plain,
    }
    ours = Broker({**settings, "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"})
    with kafka, ours:
        both = (
            Sides(kafka.port, tls_port=tls_port, certificates=certificates),
            Sides(ours.port, tls_port=ours.endpoints["SSL"].port, certificates=certificates),
        )
        for side in both:
            prepare(side)
        yield both


def prepare(side: Sides) -> None:
    """Topics, groups with an offset each, transactional ids, and the rules."""
    wanted = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in PRESENT_TOPICS]
    side.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=wanted, timeout_ms=10_000))

    def known() -> bool:
        topics = [MetadataRequestTopic(name=name) for name in PRESENT_TOPICS]
        answer = side.ask(api.METADATA, 12, MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        side.ids.update({topic.name: topic.topic_id for topic in answer.topics})
        return all(topic.error_code == 0 for topic in answer.topics)

    wait_until(known, 60, "the topics")
    for kind, names in ((0, GROUPS[:2]), (1, TRANSACTIONS[:2])):
        for name in names:

            def found(kind: int = kind, name: str = name) -> bool:
                answer = side.ask(api.FIND_COORDINATOR, 2, FindCoordinatorRequest(key=name, key_type=kind))
                return bool(answer.error_code == 0)

            wait_until(found, 60, f"the coordinator of {name}")
    for group in GROUPS[:2]:
        parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
        topics = [OffsetCommitRequestTopic(name=name, partitions=parts) for name in PRESENT_TOPICS]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        wait_until(lambda r=request: is_committed(side, r), 60, f"an offset of {group}")
    for name in TRANSACTIONS[:2]:
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        wait_until(lambda r=init: side.ask(api.INIT_PRODUCER_ID, 4, r).error_code == 0, 60, f"a producer of {name}")
    created = side.ask(api.CREATE_ACLS, 3, CreateAclsRequest(creations=[creation(acl) for acl in RULES]))
    assert {result.error_code for result in created.results} == {0}
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    def all_rules() -> bool:
        answer = side.ask(api.DESCRIBE_ACLS, 3, everything)
        return sum(len(resource.acls) for resource in answer.resources) == len(RULES)

    wait_until(all_rules, 30, "the rules")  # Kafka answers before its brokers have them


def is_committed(side: Sides, request: OffsetCommitRequest) -> bool:
    answer = side.ask(api.OFFSET_COMMIT, 8, request)
    return all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)


def test_every_api_and_version_is_asked_about() -> None:
    asked = {(key, version) for _, key, version, _ in every()}
    assert asked == {(row.key, version) for row in table.ROWS for version in versions(row.key)}


def test_answers_are_kafkas(sides: tuple[Sides, Sides]) -> None:
    served = {row.api_key: row.max_version for row in sides[0].ask(api.API_VERSIONS, 0, ApiVersionsRequest()).api_keys}
    found = []
    count = 0
    for asker in ASKERS:
        both = [side.as_(asker) for side in sides]
        for label, key, version, make in every():
            if version > served.get(key, -1):  # Kafka hides what clients push metrics by
                continue
            answers: list[Any] = [side.ask(key, version, make(version, side.ids)) for side in both]
            kafka, ours = (
                without_chance(comparable(answer, side.ids)) for answer, side in zip(answers, both, strict=True)
            )
            count += 1
            if kafka != ours and label not in DIFFERENT:
                found.append(f"{asker}: {label} v{version}\n  Kafka {kafka}\n  ours  {ours}")
    assert not found, f"{len(found)} of {count}\n" + "\n".join(found)
