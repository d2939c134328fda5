"""Requests that only the controllers answer, while another one of them takes over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.client import Client
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersResponse
from kafkalite.wire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from kafkalite.wire.protocol.messages.unregister_broker import UnregisterBrokerResponse

KEY = TopicPartition("t", 0)
TARGET: dict[TopicPartition, tuple[int, ...] | None] = {KEY: (1, 2)}


class Controllers:
    """One after the other answers, as a test says."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.looked = 0

    def request(self, _key: int, _message: object) -> Any:
        return self.answers.pop(0)

    def refresh(self, _names: object) -> None:
        self.looked += 1


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


@pytest.fixture
def client(controllers: Controllers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with Client("127.0.0.1:1", retry_timeout_s=60.0, retry_backoff_s=0.001) as client:
        monkeypatch.setattr(client, "controller", lambda: controllers)
        monkeypatch.setattr(client, "refresh", controllers.refresh)
        yield client


def altered(code: int, *rows: int) -> AlterPartitionReassignmentsResponse:
    """An answer for partitions 0 and on."""
    parts = [
        ReassignablePartitionResponse(partition_index=number, error_code=row) for number, row in enumerate(rows or (0,))
    ]
    return AlterPartitionReassignmentsResponse(
        error_code=code, responses=[ReassignableTopicResponse(name="t", partitions=parts)]
    )


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_another_controller_is_looked_for_and_asked(client: Client, controllers: Controllers, code: ErrorCode) -> None:
    reassignments = client.reassignments
    controllers.answers = [altered(code), altered(0, code), altered(0)]
    assert reassignments.alter(TARGET) == []
    assert controllers.looked == 2
    controllers.answers = [ListPartitionReassignmentsResponse(error_code=code), ListPartitionReassignmentsResponse()]
    assert reassignments.list_all() == {}
    controllers.answers = [ElectLeadersResponse(error_code=code), ElectLeadersResponse()]
    assert reassignments.elect_preferred([KEY]) == {}
    controllers.answers = [UnregisterBrokerResponse(error_code=code), UnregisterBrokerResponse()]
    reassignments.unregister(3)
    assert controllers.looked == 5


def test_what_is_refused_for_good_is_not_asked_again(client: Client, controllers: Controllers) -> None:
    controllers.answers = [altered(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    with pytest.raises(KafkaError, match="the replicas of"):
        client.reassignments.alter(TARGET)
    assert controllers.looked == 0


def test_what_was_taken_back_meanwhile_is_late(client: Client, controllers: Controllers) -> None:
    late = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    controllers.answers = [altered(0, ErrorCode.NOT_CONTROLLER), altered(0, late)]
    assert client.reassignments.alter({KEY: None}) == [KEY]


def test_what_an_earlier_try_may_have_taken_back_is_not_late(client: Client, controllers: Controllers) -> None:
    gone, unknown = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT
    controllers.answers = [altered(unknown), altered(0, gone)]
    assert client.reassignments.alter({KEY: None}) == []
    keys = [TopicPartition("t", number) for number in range(4)]
    controllers.answers = [altered(0, 0, unknown, ErrorCode.NOT_CONTROLLER, gone), altered(0, gone, gone, gone, gone)]
    assert client.reassignments.alter(dict.fromkeys(keys)) == keys[2:]
