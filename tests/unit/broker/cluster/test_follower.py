"""The next fetch a follower sends to a leader, and how it applies each response."""

from __future__ import annotations

import logging

import pytest

from kafkalite.broker.cluster.divergence import Diverged, truncation_offset
from kafkalite.broker.cluster.fetchers import _FETCH_VERSIONS, _LIST_VERSIONS, version_for
from kafkalite.broker.cluster.follower import Append, Follower, Key, Limits, OutOfRange, Place
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

LIMITS = Limits(wait_ms=500, min_bytes=1, response_bytes=1 << 20, partition_bytes=1 << 16, backoff_s=1.0)
A, B = bytes(range(16)), bytes(range(1, 17))
NOW = 100.0


def started(*keys: Key) -> Follower:
    """One that follows these from offset 10 on, in epoch 4, with batches of epoch 3."""
    follower = Follower("f", LIMITS)
    for key in keys:
        follower.follow(key, 4, Place(10, 3, 0))
    return follower


def asked(request: FetchRequest | None) -> dict[Key, tuple[int, int, int, int]]:
    assert request is not None
    return {
        (topic.topic_id, part.partition): (
            part.current_leader_epoch,
            part.fetch_offset,
            part.last_fetched_epoch,
            part.log_start_offset,
        )
        for topic in request.topics
        for part in topic.partitions
    }


def forgotten(request: FetchRequest | None) -> list[Key]:
    assert request is not None
    return [(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions]


def session(request: FetchRequest | None) -> tuple[int, int]:
    assert request is not None
    return request.session_id, request.session_epoch


def answer(*parts: tuple[Key, PartitionData], session_id: int = 7, error: int = 0) -> FetchResponse:
    rows = []
    for (topic_id, number), part in parts:
        part.partition_index = number
        rows.append(FetchableTopicResponse(topic_id=topic_id, partitions=[part]))
    return FetchResponse(session_id=session_id, error_code=error, responses=rows)


def refused(code: ErrorCode) -> PartitionData:
    return PartitionData(error_code=code, high_watermark=-1, records=None)


def test_all_partitions_are_fetched_once_and_then_those_with_changes() -> None:
    follower = started((A, 0), (A, 1), (B, 0))
    request = follower.request(NOW)
    assert session(request) == (0, 0)
    assert asked(request) == {(A, 0): (4, 10, 3, 0), (A, 1): (4, 10, 3, 0), (B, 0): (4, 10, 3, 0)}
    assert follower.answered(answer(), NOW) == []
    request = follower.request(NOW)
    assert (session(request), asked(request), forgotten(request)) == ((7, 1), {}, [])
    data = PartitionData(records=b"x", high_watermark=11, log_start_offset=2)
    assert follower.answered(answer(((A, 1), data)), NOW) == [Append((A, 1), 4, b"x", 11, 2)]
    follower.note_place((A, 1), 4, Place(12, 4, 2))
    request = follower.request(NOW)
    assert (session(request), asked(request)) == ((7, 2), {(A, 1): (4, 12, 4, 2)})


def test_what_is_followed_no_longer_or_anew_is_told() -> None:
    follower = started((A, 0), (A, 1))
    follower.request(NOW)
    follower.answered(answer(), NOW)
    follower.forget((A, 0))
    follower.follow((B, 0), 1, Place(0, -1, 0))
    follower.follow((A, 1), 5, Place(10, 3, 0))
    request = follower.request(NOW)
    assert asked(request) == {(B, 0): (1, 0, -1, 0), (A, 1): (5, 10, 3, 0)}
    assert forgotten(request) == [(A, 0)]


def test_a_denied_or_lost_session_is_requested_again() -> None:
    follower = started((A, 0))
    for _ in range(2):
        assert session(follower.request(NOW)) == (0, 0)
        follower.answered(answer(session_id=0), NOW)
    follower.request(NOW)
    follower.answered(answer(session_id=5), NOW)
    assert session(follower.request(NOW)) == (5, 1)
    assert follower.answered(answer(session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), NOW) == []
    request = follower.request(NOW)
    assert (session(request), asked(request)) == ((0, 0), {(A, 0): (4, 10, 3, 0)})
    follower.answered(answer(session_id=6), NOW)
    follower.request(NOW)
    follower.answered(answer(session_id=6, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH), NOW)
    assert session(follower.request(NOW)) == (6, 0)
    follower.answered(answer(session_id=6, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH), NOW)
    assert follower.request(NOW) is None  # twice in a row: not as fast as it can


def test_without_an_answer_all_wait_a_while() -> None:
    follower = started((A, 0))
    follower.request(NOW)
    follower.answered(answer(session_id=5), NOW)
    follower.request(NOW)
    follower.unanswered(NOW)
    assert (follower.request(NOW + 0.5), follower.wait(NOW + 0.5)) == (None, 0.5)
    request = follower.request(NOW + 1)
    assert (session(request), asked(request)) == ((5, 0), {(A, 0): (4, 10, 3, 0)})


def test_an_answer_for_another_place_or_epoch_comes_too_late() -> None:
    for change in (
        lambda f: f.follow((A, 0), 5, Place(10, 3, 0)),
        lambda f: f.note_place((A, 0), 4, Place(8, 3, 0)),
        lambda f: f.forget((A, 0)),
        lambda f: f.give_up((A, 0), 4),
    ):
        follower = started((A, 0))
        follower.request(NOW)
        change(follower)
        diverged = PartitionData(diverging_epoch=EpochEndOffset(epoch=2, end_offset=5))
        assert follower.answered(answer(((A, 0), diverged)), NOW) == []


def test_answers_become_steps() -> None:
    follower = started((A, 0), (A, 1), (A, 2))
    follower.request(NOW)
    diverged = PartitionData(high_watermark=99, diverging_epoch=EpochEndOffset(epoch=2, end_offset=5))
    steps = follower.answered(
        answer(
            ((A, 0), diverged),
            ((A, 1), refused(ErrorCode.OFFSET_OUT_OF_RANGE)),
            ((A, 2), PartitionData(records=None, high_watermark=3)),
        ),
        NOW,
    )
    assert steps == [Diverged((A, 0), 4, 2, 5), OutOfRange((A, 1), 4), Append((A, 2), 4, b"", 3, -1)]


def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again_soon_and_then_less_often() -> None:
    follower = started((A, 0))
    now, waits = NOW, []
    for _ in range(9):
        assert follower.request(now) is not None
        assert follower.answered(answer(((A, 0), refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))), now) == []
        wait_s = follower.wait(now)
        assert wait_s is not None
        waits.append(wait_s)
        now += wait_s + 0.001
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0])
    follower.request(now)
    follower.answered(answer(((A, 0), PartitionData(records=b"", high_watermark=3))), now)
    follower.request(now)
    follower.answered(answer(((A, 0), refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))), now)
    assert follower.wait(now) == pytest.approx(0.02)


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_cannot_be_fetched_now_waits_alone(code: ErrorCode) -> None:
    follower = started((A, 0), (A, 1))
    follower.request(NOW)
    assert follower.answered(answer(((A, 0), refused(code))), NOW) == []
    request = follower.request(NOW)
    assert (asked(request), forgotten(request)) == ({}, [(A, 0)])
    follower.answered(answer(), NOW)
    assert asked(follower.request(NOW + 1)) == {(A, 0): (4, 10, 3, 0)}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE])
def test_who_is_fenced_waits_for_metadata(code: ErrorCode) -> None:
    follower = started((A, 0))
    follower.request(NOW)
    assert follower.answered(answer(((A, 0), refused(code))), NOW) == []
    assert (follower.request(NOW + 100), follower.wait(NOW + 100)) == (None, None)
    follower.follow((A, 0), 5, Place(10, 3, 0))
    assert asked(follower.request(NOW + 100)) == {(A, 0): (5, 10, 3, 0)}


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_lasting_error_is_logged_once(code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    follower = started((A, 0), (A, 1))
    for epoch in range(5, 9):
        follower.request(NOW + epoch)
        follower.answered(answer(((A, 0), refused(code))), NOW + epoch)
        follower.follow((A, 0), epoch, Place(10, 3, 0))
    assert len(caplog.records) == 1
    follower.request(NOW + 10)
    follower.answered(answer(((A, 1), refused(code))), NOW + 10)
    assert len(caplog.records) == 2, "another partition is news"
    follower.goes_well((A, 0))
    follower.request(NOW + 20)
    follower.answered(answer(((A, 0), refused(code))), NOW + 20)
    assert len(caplog.records) == 3, "as it is after it went well"


def test_a_partition_that_was_served_goes_behind_the_others() -> None:
    follower = started((A, 0), (A, 1), (A, 2))
    follower.request(NOW)
    follower.answered(answer(session_id=0), NOW)
    follower.note_place((A, 0), 4, Place(12, 4, 0))
    assert list(asked(follower.request(NOW))) == [(A, 1), (A, 2), (A, 0)]


def test_idle_partitions_cost_no_bytes() -> None:
    follower = started(*((A, number) for number in range(3000)))
    assert len(asked(follower.request(NOW))) == 3000
    follower.answered(answer(), NOW)
    for _ in range(3):
        request = follower.request(NOW)
        assert request is not None
        assert request.topics == []
        follower.answered(answer(), NOW)


@pytest.mark.parametrize(
    ("theirs", "own", "log_end", "cut"),
    [
        ((3, 20), (3, 15), 30, 15),  # the epoch ends here earlier
        ((3, 20), (3, 25), 30, 20),  # or there
        ((3, 20), (3, 30), 18, 18),
        ((3, 20), (2, 12), 30, 12),  # not known here: asked again with an older one
        ((3, 20), (-1, -1), 30, 20),  # nothing is known here
        ((1, 5), (1, 7), 30, 5),  # below the first epoch here
        ((-1, -1), (3, 9), 30, None),
    ],
)
def test_where_a_log_is_cut(theirs: tuple[int, int], own: tuple[int, int], log_end: int, cut: int | None) -> None:
    assert truncation_offset(Diverged((A, 0), 4, *theirs), own, log_end) == cut


@pytest.mark.parametrize(
    ("level", "fetch", "listed"),
    [
        (7, 13, 7),
        (9, 14, 8),
        (10, 15, 8),
        (19, 16, 8),
        (21, 17, 9),
        (25, 17, 10),
        (27, 18, 10),
        (29, 18, 11),
        (33, 18, 11),
    ],
)
def test_versions_follow_from_the_clusters_level(level: int, fetch: int, listed: int) -> None:
    """As MetadataVersion of Kafka 4.1, 4.2 and 4.4 has them."""
    assert (version_for(_FETCH_VERSIONS, level), version_for(_LIST_VERSIONS, level)) == (fetch, listed)
