"""Auto-created topics: the requests to the controller, and their rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.base.deferred import Deferred
from kafkalite.broker.cluster.creation import CONTROLLERS_CHOICE, TOPICS_MAX, Creation
from kafkalite.broker.cluster.forwarding import Outcome
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api, decode_request, header
from kafkalite.wire.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

if TYPE_CHECKING:
    import pytest


class Controller:
    """Keeps what it was asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str, str]] = []
        self.outcomes: list[Deferred[Outcome]] = []
        self.creation = Creation(self.forward, lambda: {api.CREATE_TOPICS: (2, 5)}, self.ask_for_itself)
        self.own: list[tuple[int, Any, Deferred[Any]]] = []

    def ask_for_itself(self, key: int, request: object) -> Deferred[Any]:
        self.own.append((key, request, Deferred()))
        return self.own[-1][2]

    def forward(self, request: bytes, principal: str, host: str) -> Deferred[Outcome]:
        self.asked.append((request, principal, host))
        self.outcomes.append(Deferred())
        return self.outcomes[-1]

    def names(self, index: int) -> list[str]:
        request, principal, host = self.asked[index]
        head = header.decode_request_header(request)
        assert (head.api_key, head.api_version, head.client_id) == (api.CREATE_TOPICS, 5, "program")
        assert (principal, host) == ("User:ann", "10.0.0.1")
        message = decode_request(api.CREATE_TOPICS, 5, memoryview(request)[head.body_position :])
        assert all(each.num_partitions == each.replication_factor == CONTROLLERS_CHOICE for each in message.topics)
        return [each.name for each in message.topics]

    def ask(self, *names: str) -> None:
        self.creation.ask(names, "program", "User:ann", "10.0.0.1")


def test_controller_is_asked_in_the_clients_name_in_a_version_that_it_knows() -> None:
    controller = Controller()
    controller.ask("b", "a", "b")
    assert controller.names(0) == ["b", "a"]


def test_a_topic_name_is_requested_once_until_there_is_an_answer() -> None:
    controller = Controller()
    controller.ask("a")
    controller.ask("a", "b")
    controller.ask("a", "b")
    assert [controller.names(index) for index in range(len(controller.asked))] == [["a"], ["b"]]
    controller.outcomes[0].complete(Outcome(None, ErrorCode.REQUEST_TIMED_OUT))
    controller.ask("a", "b")
    assert controller.names(2) == ["a"]


def test_more_names_than_may_be_under_way_are_left_out() -> None:
    controller = Controller()
    controller.ask(*(f"t{number}" for number in range(TOPICS_MAX + 10)))
    assert len(controller.names(0)) == TOPICS_MAX
    controller.ask("another")
    assert len(controller.asked) == 1
    controller.outcomes[0].complete(Outcome(b"\0\0\0\0"))
    controller.ask("another")
    assert controller.names(1) == ["another"]


def test_the_coordinators_topic_is_requested_once_at_a_time_in_the_brokers_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller()
    for _ in range(3):
        controller.creation.ask_internal("__consumer_offsets", 50, 1, {"cleanup.policy": "compact"})
    ((key, request, answer),) = controller.own
    (topic,) = request.topics
    assert (key, topic.name, topic.num_partitions, topic.replication_factor) == (19, "__consumer_offsets", 50, 1)
    assert [(each.name, each.value) for each in topic.configs] == [("cleanup.policy", "compact")]
    answer.complete(
        CreateTopicsResponse(
            topics=[CreatableTopicResult(error_code=ErrorCode.INVALID_REPLICATION_FACTOR, error_message="no room")]
        )
    )
    assert "no room" in caplog.text
    controller.creation.ask_internal("__consumer_offsets", 50, 1, {})
    controller.own[1][2].complete(None)
    assert "no controller answered" in caplog.text
    controller.creation.ask_internal("__consumer_offsets", 50, 1, {})
    assert len(controller.own) == 3
