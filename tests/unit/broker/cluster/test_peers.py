"""The channel to an API of another broker: waiting requests are batched, and each one is answered despite any fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.brokers import Brokers
from kafkalite.broker.cluster.image import EMPTY, Delta, Image
from kafkalite.broker.cluster.peers import Peers
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.kit.fakes.controller import ScriptedController
from tests.kit.processes.broker import wait_until

WAIT_S = 60


@pytest.fixture
def other() -> Iterator[ScriptedController]:
    """Another node; what it serves is as good as any."""
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as scripted:
        yield scripted


def image(port: int) -> Image:
    delta = Delta(EMPTY)
    endpoint = types.BrokerEndpoint(name="INNER", host="127.0.0.1", port=port)
    delta.apply(types.RegisterBrokerRecord(broker_id=2, broker_epoch=1, end_points=[endpoint]))
    delta.apply(types.RegisterBrokerRecord(broker_id=3, broker_epoch=2))
    return delta.build(2, 1)


@pytest.fixture
def peers(other: ScriptedController) -> Iterator[Peers]:
    known = image(other.port)
    found = Peers(Brokers(lambda: known, "INNER"), 1)
    yield found
    found.stop()


def echo(request: CreateTopicsRequest) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name) for each in request.topics])


def build(items: Sequence[str]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in items])


class Settled:
    """What lanes were answered."""

    def __init__(self) -> None:
        self.answers: list[tuple[list[str], Any]] = []

    def __call__(self, items: Sequence[str], answer: Any) -> None:
        self.answers.append((list(items), answer and [each.name for each in answer.topics]))

    def wait(self, count: int) -> None:
        wait_until(lambda: sum(len(items) for items, _ in self.answers) >= count, WAIT_S, f"{count} are answered")


def test_what_waits_goes_together_and_in_order(peers: Peers, other: ScriptedController) -> None:
    settled = Settled()
    other.answers[api.CREATE_TOPICS].extend([echo] * 50)
    names = [f"t{number}" for number in range(50)]
    for name in names:
        peers.lane(2, api.CREATE_TOPICS, 3, build, settled).put(name)
    settled.wait(50)
    assert [name for items, _ in settled.answers for name in items] == names
    assert all(items == answer for items, answer in settled.answers)
    assert len(other.requests(api.CREATE_TOPICS)) == len(settled.answers)


@pytest.mark.parametrize("node_id", [3, 4], ids=["without the listener", "unknown"])
def test_broker_that_cannot_be_reached_is_an_answer(peers: Peers, node_id: int) -> None:
    settled = Settled()
    peers.lane(node_id, api.CREATE_TOPICS, 3, build, settled).put("t")
    settled.wait(1)
    assert settled.answers == [(["t"], None)]


def test_lost_connection_is_an_answer_and_the_next_one_is_new(peers: Peers, other: ScriptedController) -> None:
    settled = Settled()
    lane = peers.lane(2, api.CREATE_TOPICS, 3, build, settled)
    other.answers[api.CREATE_TOPICS].extend([lambda _request: None, echo])
    lane.put("a")
    settled.wait(1)
    lane.put("b")
    settled.wait(2)
    assert settled.answers == [(["a"], None), (["b"], ["b"])]


def test_a_broker_that_goes_silent_is_in_the_log_once_and_again_after_an_answer(
    peers: Peers, other: ScriptedController, caplog: pytest.LogCaptureFixture
) -> None:
    settled = Settled()
    lane = peers.lane(2, api.CREATE_TOPICS, 3, build, settled)
    lost = lambda _request: None  # noqa: E731
    other.answers[api.CREATE_TOPICS].extend([lost, lost, echo, lost])
    for number in range(1, 5):
        lane.put("t")
        settled.wait(number)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2
    assert all("the broker at" in record.getMessage() for record in said)


def test_version_that_the_other_does_not_serve_is_an_answer(peers: Peers) -> None:
    settled = Settled()
    peers.lane(2, api.WRITE_TXN_MARKERS, 1, build, settled).put("t")
    settled.wait(1)
    assert settled.answers == [(["t"], None)]


def test_no_request_says_two_things_of_one(peers: Peers, other: ScriptedController) -> None:
    settled = Settled()
    asked, may_answer = threading.Event(), threading.Event()

    def held(request: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.set()
        assert may_answer.wait(WAIT_S)
        return echo(request)

    other.answers[api.CREATE_TOPICS].extend([held, echo, echo])
    lane = peers.lane(2, api.CREATE_TOPICS, 3, build, settled, lambda name: (name[0], name[1]))
    lane.put("x0")
    assert asked.wait(WAIT_S)
    for name in ("a1", "a2", "b1", "a1", "b2"):
        lane.put(name)
    may_answer.set()
    settled.wait(6)
    assert [items for items, _ in settled.answers] == [["x0"], ["a1", "b1", "a1"], ["a2", "b2"]]


def test_a_request_after_the_stop_is_refused(peers: Peers) -> None:
    settled = Settled()
    lane = peers.lane(2, api.CREATE_TOPICS, 3, build, settled)
    peers.stop()
    lane.put("a")
    peers.lane(2, api.DELETE_TOPICS, 1, build, settled).put("b")
    assert settled.answers == [(["a"], None), (["b"], None)]
