"""Requests that wait for a controller: who answers them, when they give up, and how much may wait."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.broker.cluster import forwarding
from kafkalite.broker.cluster.connection import ConnectionFailed, NotServed
from kafkalite.broker.cluster.forwarding import RETRY_S_MAX, Forwarder, Outcome, encode_principal, packed
from kafkalite.broker.cluster.lifecycle import LOOK_AGAIN_S
from kafkalite.broker.cluster.quorum import Address
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kafkalite.wire.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.kit.fakes.clock import FakeClock
from tests.kit.fakes.executors import FakeExecutors

LEADER = Address("a", 1)


class Connection:
    """A connection that returns the prepared responses and raises the prepared exceptions."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[EnvelopeRequest] = []
        self.closed = False
        self.not_served: set[int] = set()

    def version(self, api_key: int) -> int:
        if api_key in self.not_served:
            raise NotServed("the controller does not serve it")
        return 0

    def request(self, _key: int, _version: int, message: EnvelopeRequest, _timeout_s: float) -> Any:
        self.asked.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True

    abort = close


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.executors = FakeExecutors()
        self.connection = Connection()
        self.leader: Address | None = LEADER
        self.forwarder = Forwarder(
            lambda: self.leader, lambda _present, _address: self.connection, self.clock, self.executors
        )
        self.forwarder.start()

    def ask(self, request: bytes = b"request") -> Any:
        return self.forwarder.forward(request, "User:ann", "10.0.0.1")

    def turn(self) -> float | None:
        return self.executors.turn("kafkalite-forwarder")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_controllers_answer_is_the_clients(scene: Scene) -> None:
    scene.connection.answers = [EnvelopeResponse(response_data=b"\0\0\0\0answer")]
    outcome = scene.ask()
    assert not outcome.done
    assert scene.turn() == 0
    assert outcome.response == Outcome(b"\0\0\0\0answer")
    (envelope,) = scene.connection.asked
    assert envelope.request_data == b"request"
    assert envelope.request_principal == b"\0\0\x05User\x04ann\0\0"
    assert envelope.client_host_address == bytes([10, 0, 0, 1])
    assert scene.turn() is None


def test_new_leader_is_asked_again_in_order(scene: Scene) -> None:
    scene.connection.answers = [
        ConnectionFailed("gone"),
        EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER),
        EnvelopeResponse(response_data=b"\0\0\0\0one"),
        EnvelopeResponse(response_data=b"\0\0\0\0two"),
    ]
    first, second = scene.ask(b"1"), scene.ask(b"2")
    scene.leader = None
    assert scene.turn() == LOOK_AGAIN_S
    scene.leader = LEADER
    assert scene.turn() == LOOK_AGAIN_S
    assert scene.turn() == LOOK_AGAIN_S
    assert scene.connection.closed
    scene.turn()
    scene.turn()
    assert [first.response.answer, second.response.answer] == [b"\0\0\0\0one", b"\0\0\0\0two"]
    assert [each.request_data for each in scene.connection.asked] == [b"1", b"1", b"1", b"2"]


def test_what_the_controller_does_not_serve_keeps_nobody_behind_it(scene: Scene) -> None:
    scene.connection.not_served = {api.ALLOCATE_PRODUCER_IDS}
    scene.connection.answers = [EnvelopeResponse(response_data=b"\0\0\0\0one")]
    own = scene.forwarder.ask(api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest())
    client = scene.ask(b"1")
    scene.turn()
    assert (own.done, own.response) == (True, None)
    scene.turn()
    assert client.response.answer == b"\0\0\0\0one"
    scene.connection.not_served = {api.ENVELOPE}
    refused = scene.ask(b"2")
    scene.turn()
    assert refused.response == Outcome(None, ErrorCode.UNSUPPORTED_VERSION)


def test_without_a_controller_its_time_is_over_in_the_end(scene: Scene) -> None:
    scene.leader = None
    outcome = scene.ask()
    assert scene.turn() == LOOK_AGAIN_S
    scene.clock.advance(RETRY_S_MAX)
    scene.turn()
    assert outcome.response == Outcome(None, ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["version", "not allowed", "principal", "nothing", "too short"],
)
def test_refused_envelope_is_an_error_of_the_clients_request(scene: Scene, answer: Any, code: ErrorCode) -> None:
    scene.connection.answers = [answer]
    outcome = scene.ask()
    scene.turn()
    assert outcome.response == Outcome(None, code)


def test_more_than_may_wait_is_refused_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "WAITING_BYTES_MAX", 10)
    large, refused = scene.ask(b"x" * 20), scene.ask(b"y")
    assert refused.response == Outcome(None, ErrorCode.REQUEST_TIMED_OUT)
    scene.connection.answers = [EnvelopeResponse(response_data=b"\0\0\0\0")] * 2
    scene.turn()
    assert large.done
    later = scene.ask(b"y")
    scene.turn()
    assert later.response.answer == b"\0\0\0\0"


def test_request_that_cannot_be_passed_on_holds_up_no_other(scene: Scene) -> None:
    scene.connection.answers = [ZeroDivisionError(), EnvelopeResponse(response_data=b"\0\0\0\0")]
    first, second = scene.ask(b"1"), scene.ask(b"2")
    scene.turn()
    scene.turn()
    assert first.response == Outcome(None, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert second.response.answer == b"\0\0\0\0"


def test_stop_answers_each_waiting_request(scene: Scene) -> None:
    waiting = scene.ask()
    scene.forwarder.stop()
    assert waiting.response == Outcome(None, ErrorCode.REQUEST_TIMED_OUT)
    assert scene.ask().response == Outcome(None, ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    ("host", "size"), [("127.0.0.1", 4), ("::1", 16), ("::ffff:10.0.0.1", 4), ("fe80::1%eth0", 16)]
)
def test_addresses_are_packed_as_java_has_them(host: str, size: int) -> None:
    assert len(packed(host)) == size


def test_long_name_has_a_length_of_two_bytes() -> None:
    name = "n" * 200
    assert encode_principal(f"User:{name}") == b"\0\0\x05User" + bytes((201 & 0x7F | 0x80, 1)) + name.encode() + b"\0\0"


def test_brokers_own_request_gets_the_controllers_response(scene: Scene) -> None:
    refusal = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    given = AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=10)
    scene.connection.answers = [refusal, ConnectionFailed("gone"), given]
    answer = scene.forwarder.ask(api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=7))
    assert [scene.turn(), scene.turn()] == [LOOK_AGAIN_S, LOOK_AGAIN_S]
    scene.turn()
    assert answer.response is given
    assert len(scene.connection.asked) == 3


def test_brokers_own_request_without_a_controller_ends_with_nothing(scene: Scene) -> None:
    scene.leader = None
    answer = scene.forwarder.ask(api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=7))
    scene.turn()
    scene.clock.advance(RETRY_S_MAX)
    scene.turn()
    assert answer.response is None
    late = scene.forwarder.ask(api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=7))
    scene.forwarder.stop()
    assert late.response is None
    assert scene.forwarder.ask(api.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest()).response is None
