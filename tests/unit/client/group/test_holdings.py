"""The partitions a group member owns, and their delivered and committed positions."""

from typing import Any

from kafkalite.client import Chunk, CommittedOffset
from kafkalite.client.group.holdings import Holdings
from kafkalite.model import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def chunk(key: TopicPartition, next_offset: int, records: int = 1) -> Chunk:
    columns: Any = [b""] * records  # only how many there are counts here
    return Chunk(key, columns, next_offset, next_offset)


def holding(*keys: TopicPartition) -> Holdings:
    found = Holdings()
    found.take(set(keys), 5.0)
    found.begin(dict.fromkeys(keys, 0))
    return found


def test_what_was_taken_has_no_place_until_it_begins() -> None:
    holdings = Holdings()
    holdings.take({A, B}, 5.0)
    assert (holdings.owned, holdings.unplaced, holdings.unplaced_since) == ({A, B}, {A, B}, 5.0)
    holdings.begin({A: 7})
    assert (holdings.unplaced, holdings.positions) == ({B}, {A: 7})


def test_chunks_without_records_move_the_position_alone() -> None:
    holdings = holding(A)
    assert not holdings.hold([chunk(A, 3, records=0)])
    assert holdings.positions == {A: 3}
    assert holdings.hold([chunk(A, 4), chunk(A, 5, records=0)])
    assert [found.next_offset for found in holdings.hand_out_all()] == [4]
    assert holdings.positions == {A: 5}


def test_a_position_counts_what_was_handed_out_not_what_is_held() -> None:
    holdings = holding(A, B)
    holdings.hold([chunk(A, 3), chunk(B, 4)])
    assert holdings.hand_out().partition == A
    assert holdings.positions == {A: 3, B: 0}


def test_only_what_moved_since_the_last_commit_is_uncommitted() -> None:
    holdings = holding(A, B)
    holdings.note_committed({A: 0, B: 0})
    holdings.hold([chunk(A, 3)])
    holdings.hand_out()
    assert holdings.uncommitted() == {A: CommittedOffset(3, -1, "")}


def test_what_is_dropped_leaves_nothing_behind() -> None:
    holdings = holding(A, B)
    holdings.hold([chunk(A, 3), chunk(B, 4)])
    holdings.drop({A})
    assert (holdings.owned, holdings.positions) == ({B}, {B: 0})
    assert [found.partition for found in holdings.hand_out_all()] == [B]
    holdings.note_committed({A: 3})
    holdings.take({A}, 6.0)
    holdings.begin({A: 3})
    assert holdings.uncommitted() == {A: CommittedOffset(3), B: CommittedOffset(4)}


def test_chunks_that_are_dropped_say_of_which_partitions() -> None:
    holdings = holding(A, B)
    holdings.hold([chunk(A, 3)])
    assert holdings.drop_chunks({A, B}) == {A}
    assert holdings.positions == {A: 0, B: 0}
