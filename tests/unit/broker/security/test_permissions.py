"""The table of permissions: it has a row for each API, what is asked is what it says, and nothing is given away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.base.acls import OPERATIONS, AclOperation, ResourceType
from kafkalite.broker.handlers import permissions, table
from kafkalite.broker.handlers.permissions import CLUSTER, PERMISSIONS
from kafkalite.broker.security.authorizer import PROBED_NAME, Authorizer
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.kit.checkers.permission_questions import (
    ASKERS,
    GROUPS,
    PRESENT_TOPICS,
    RULES,
    TRANSACTIONS,
    Ids,
    every,
)
from tests.kit.checkers.side_by_side import comparable
from tests.kit.harness.acl_broker import ADMIN, GROUP, TOPIC, TRANSACTIONAL_ID, AclBroker
from tests.kit.processes.broker import wait_until

Answers = dict[tuple[str, str, int, int], Any]
"""(asker, label, API key, version) → answer"""
Question = tuple[AclOperation, ResourceType]
UNSERVED: dict[int, set[Question]] = {
    api.DELETE_TOPICS: {(AclOperation.DELETE, TOPIC)},
    api.ADD_PARTITIONS_TO_TXN: {(AclOperation.CLUSTER_ACTION, CLUSTER)},  # of brokers, in a cluster
    api.DESCRIBE_TRANSACTIONS: {(AclOperation.DESCRIBE, TOPIC)},
    api.CONSUMER_GROUP_DESCRIBE: {(AclOperation.DESCRIBE, TOPIC)},
    api.INIT_PRODUCER_ID: {(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID), (AclOperation.WRITE, TOPIC)},
    api.DESCRIBE_CONFIGS: {(AclOperation.DESCRIBE_CONFIGS, GROUP)},
    api.ALTER_CONFIGS: {(AclOperation.ALTER_CONFIGS, GROUP)},
    api.INCREMENTAL_ALTER_CONFIGS: {(AclOperation.ALTER_CONFIGS, GROUP)},
}
"""Questions not asked for lack of topics, members or versions; and WRITE on any topic, which has no name."""
TELLS_OPERATIONS: dict[int, ResourceType] = {
    api.METADATA: TOPIC,
    api.DESCRIBE_TOPIC_PARTITIONS: TOPIC,
    api.DESCRIBE_GROUPS: GROUP,
    api.CONSUMER_GROUP_DESCRIBE: GROUP,
    api.DESCRIBE_CLUSTER: CLUSTER,
}
"""APIs that ask all there is to ask about a resource, to tell what may be done with it."""


class Asked:
    """The questions a broker has asked its authorizer, by API name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions: dict[str, set[Question]] = defaultdict(set)
        decide = Authorizer.allows

        def allows(self_: Authorizer, *question: Any, **more: Any) -> bool:
            _, _, operation, kind, name, asking = question
            if name != PROBED_NAME:
                self.questions[asking].add((operation, kind))
            return decide(self_, *question, **more)

        monkeypatch.setattr(Authorizer, "allows", allows)


def ask_everything(broker: AclBroker, ids: Ids) -> Answers:
    return {
        (asker, label, key, version): broker.ask(asker, key, version, make(version, ids))
        for label, key, version, make in every()
        for asker in ASKERS
    }


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Answers]]:
    """Every question of permission_questions, answered by a broker that has what is asked about."""
    with pytest.MonkeyPatch.context() as monkeypatch, AclBroker(tmp_path_factory.mktemp("acls")) as broker:
        ids = {name: broker.make_topic(name, 2) for name in PRESENT_TOPICS}
        for group in GROUPS[:2]:
            parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
            topics = [OffsetCommitRequestTopic(name=name, partitions=parts) for name in PRESENT_TOPICS]
            request = OffsetCommitRequest(group_id=group, topics=topics)
            assert broker.ask(ADMIN, api.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code == 0
        for name in TRANSACTIONS[:2]:
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            wait_until(lambda r=init: broker.ask(ADMIN, api.INIT_PRODUCER_ID, 4, r).error_code == 0, 60, name)
        broker.allow(*RULES)
        asked = Asked(monkeypatch)
        yield asked, ask_everything(broker, ids)


def test_every_api_has_its_row() -> None:
    assert {row.key for row in table.ROWS} == set(PERMISSIONS)


def test_a_gate_has_a_code_to_answer_with() -> None:
    for key, row in PERMISSIONS.items():
        if row.gate is not None:
            assert row.questions == {(row.gate, CLUSTER)}
            if not row.each:  # the others' answers: error_answers
                assert permissions.closed_gate(key).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
def test_what_is_asked_is_what_the_row_says(full: tuple[Asked, Answers], row: table.Row) -> None:
    asked = full[0].questions.get(row.name, set())
    kind = TELLS_OPERATIONS.get(row.key)
    operations = set() if kind is None else {(operation, kind) for operation in OPERATIONS[kind]}
    if row.key == api.METADATA:
        operations |= {(operation, CLUSTER) for operation in OPERATIONS[CLUSTER]}
    declared = PERMISSIONS[row.key].questions
    assert asked - operations <= declared
    assert declared - UNSERVED.get(row.key, set()) <= asked


def test_a_handler_that_asks_what_its_row_does_not_say_fails(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PERMISSIONS, api.LIST_GROUPS, permissions.Permissions(frozenset()))
    with AclBroker(tmp_path) as broker, pytest.raises(ConnectionError):
        broker.ask("bob", api.LIST_GROUPS, 4, ListGroupsRequest())


def test_whoever_has_no_rights_cannot_tell_what_is_there(full: tuple[Asked, Answers], tmp_path) -> None:
    """By name, that is: an unknown topic id is no secret."""
    compared = 0
    with AclBroker(tmp_path) as broker:
        broker.allow(*RULES)
        for label, key, version, make in every():
            request = make(version, {})
            if "topic_id=b'\\x07" in repr(request):
                continue
            there = comparable(full[1]["mallory", label, key, version], {})
            assert comparable(broker.ask("mallory", key, version, request), {}) == there, f"{label} v{version}"
            compared += 1
    assert compared > 500
