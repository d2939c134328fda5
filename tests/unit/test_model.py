"""Names, ids and the clocks."""

import uuid

import pytest

from kafkalite.base.clock import Clock, SystemClock
from kafkalite.model import (
    Endpoint,
    TopicPartition,
    new_uuid,
    topic_name_error,
    topic_names_collide,
    uuid_bytes,
    uuid_text,
)
from tests.kit.fakes.clock import FakeClock


@pytest.mark.parametrize("name", ["a", "orders.v2", "A_b-c.9", "x" * 249])
def test_legal_topic_names(name: str) -> None:
    assert topic_name_error(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, "a\n", "a\0"])
def test_illegal_topic_names_get_a_reason(name: str) -> None:
    assert topic_name_error(name)


def test_names_collide_when_only_dot_and_underscore_differ() -> None:
    assert topic_names_collide("a.b", "a_b")
    assert not topic_names_collide("a.b", "a-b")


def test_uuid_text_is_kafkas() -> None:
    value = uuid.UUID("00000000-0000-0000-0000-000000000001").bytes
    assert uuid_text(value) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ") == value


def test_new_uuids_are_random_version_4_and_survive_text() -> None:
    values = {new_uuid() for _ in range(1000)}
    assert len(values) == 1000
    for value in values:
        assert uuid.UUID(bytes=value).version == 4
        assert not uuid_text(value).startswith("-")
        assert uuid_bytes(uuid_text(value)) == value


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "!", "ü" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"id|base64|Incorrect|Only|Non"):
        uuid_bytes(text)


def test_texts() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert str(Endpoint("KAFKA", "::1", 9092)) == "[::1]:9092"


def test_system_clock_runs_forward() -> None:
    clock: Clock = SystemClock()
    first, second = clock.monotonic(), clock.monotonic()
    assert second >= first
    assert clock.time_ms() > 1_700_000_000_000


def test_the_fake_clock_advances_only_on_request() -> None:
    clock = FakeClock(time_ms=1000, monotonic=5.0)
    clock.advance(1.5)
    assert (clock.time_ms(), clock.monotonic()) == (2500, 6.5)
    clock.jump(-2)
    assert (clock.time_ms(), clock.monotonic()) == (500, 6.5)
