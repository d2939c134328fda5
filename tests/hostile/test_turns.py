"""Produce and Fetch stay on a network thread, however many partitions they name: none of its turns is long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.hostile.bounds import ITEMS, WAIT_S
from tests.hostile.conftest import POPULACE, Scene
from tests.kit.harness import wire
from tests.kit.harness.samples import sample
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.requests import BATCH, WIDE
from tests.kit.hostile.world import longest_turn_s, turns

TURN_CPU_S_MAX = 0.04
"""A bucket of the histogram ends at 0.033. Without turns a request takes 0.3, and more on a slow machine."""


def endure(scene: Scene, frame: bytes) -> None:
    before = turns(scene.metrics_port)
    attacked = scene.endure(Flood(scene.broker.port, [frame], connections=1), WAIT_S, 1)
    assert attacked["answered"] == 1
    longest = longest_turn_s(before, turns(scene.metrics_port))
    assert longest is not None
    assert longest <= TURN_CPU_S_MAX


@pytest.mark.parametrize("acks", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_produce_to_many_partitions(scene: Scene, acks: int) -> None:
    parts = [(number % POPULACE.partitions, BATCH) for number in range(ITEMS)]
    body = wire.produce_body(WIDE, parts, acks=acks)
    endure(scene, wire.frame(wire.header(wire.PRODUCE, 7, 1) + body))


def fetch_body(topics: bytes, session: tuple[int, int] = (0, -1), wait_ms: int = 0) -> bytes:
    """A Fetch request, version 11."""
    limits = wire.i32(-1) + wire.i32(wait_ms) + wire.i32(1) + wire.i32(50 << 20) + wire.i8(0)
    return limits + wire.i32(session[0]) + wire.i32(session[1]) + topics + wire.array([]) + wire.string("")


def fetch_part(partition: int, offset: int = 0) -> bytes:
    return wire.i32(partition) + wire.i32(-1) + wire.i64(offset) + wire.i64(-1) + wire.i32(1 << 20)


def one_topic(partitions: int, offset: int = 0) -> bytes:
    """Names partitions of one topic up to a number, again and again."""
    parts = [fetch_part(number % partitions, offset) for number in range(ITEMS)]
    return wire.array([wire.string(WIDE) + wire.array(parts)])


def many_topics() -> bytes:
    part = wire.array([fetch_part(0)])
    return wire.array([wire.string(f"missing-{number}") + part for number in range(ITEMS)])


@pytest.mark.parametrize("wait_ms", [0, 300], ids=["at once", "parked"])
def test_fetch_of_many_partitions(scene: Scene, wait_ms: int) -> None:
    body = fetch_body(one_topic(POPULACE.partitions - 1), wait_ms=wait_ms)
    endure(scene, wire.frame(wire.header(wire.FETCH, 11, 1) + body))


def test_fetch_of_many_topics(scene: Scene) -> None:
    endure(scene, wire.frame(wire.header(wire.FETCH, 11, 1) + fetch_body(many_topics())))


def test_fetch_of_many_partitions_with_records(scene: Scene) -> None:
    last = POPULACE.partitions - 1
    with wire.Connection(scene.broker.port) as connection:
        assert connection.produce(WIDE, last, BATCH).error == 0
    parts = [fetch_part(last) for _ in range(ITEMS)]
    body = fetch_body(wire.array([wire.string(WIDE) + wire.array(parts)]))
    endure(scene, wire.frame(wire.header(wire.FETCH, 11, 1) + body))


@pytest.mark.parametrize("topics_of", sample([partial(one_topic, ITEMS), many_topics], 1), ids=["partitions", "topics"])
def test_fetch_session_of_many_partitions(scene: Scene, topics_of: Callable[[], bytes]) -> None:
    """It is opened, asked, changed, and closed."""
    topics = topics_of()
    before = turns(scene.metrics_port)
    with wire.Connection(scene.broker.port) as connection:

        def session_of(answer: bytes) -> int:
            assert answer[4:6] == bytes(2)
            return int.from_bytes(answer[6:10], "big")

        session = session_of(connection.call(wire.FETCH, 11, fetch_body(topics, (0, 0))))
        assert session != 0
        assert session_of(connection.call(wire.FETCH, 11, fetch_body(wire.array([]), (session, 1)))) == session
        assert session_of(connection.call(wire.FETCH, 11, fetch_body(topics, (session, 2)))) == session
        assert session_of(connection.call(wire.FETCH, 11, fetch_body(wire.array([]), (session, -1)))) == 0
    longest = longest_turn_s(before, turns(scene.metrics_port))
    assert longest is not None
    assert longest <= TURN_CPU_S_MAX
