"""Which offsets a query reads: precedence, checks, fair shares, splitting."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client import OffsetRange
from kafkalite.load.positions import from_json, to_json
from kafkalite.load.selection import OffsetBound, OptionError, resolve
from kafkalite.load.shares import end_at_size, fair_shares
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.spark.source.offsets import DataLoss, Piece, checked_ranges, split_to_count, split_to_offsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

keys = st.builds(TopicPartition, st.sampled_from(["a", "b", "B", "a.b"]), st.integers(0, 12))
positions = st.dictionaries(keys, st.integers(0, 2**63 - 1))


class TestJson:
    @given(positions, st.randoms(use_true_random=False))
    def test_order_does_not_matter_and_nothing_is_lost(self, wanted: dict, rng: random.Random) -> None:
        shuffled = list(wanted.items())
        rng.shuffle(shuffled)
        text = json.dumps(to_json(dict(shuffled)))
        assert text == json.dumps(to_json(wanted))
        assert from_json(json.loads(text)) == wanted

    def test_partitions_are_in_order_of_their_numbers(self) -> None:
        found = to_json({TopicPartition("a", 10): 1, TopicPartition("b", 0): 3, TopicPartition("a", 9): 2})
        assert json.dumps(found) == '{"a": {"9": 2, "10": 1}, "b": {"0": 3}}'

    @pytest.mark.parametrize(
        "value", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": True}}, {"a": {"²": 1}}]
    )
    def test_what_is_no_position_is_refused(self, value: dict) -> None:
        with pytest.raises(ValueError, match=r"partition number|an object of partitions|not an offset"):
            from_json(value)


class FakeLog:
    """Partitions from 10 to 100 with a record each ms from time 1000 + offset on."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []

    def look_up(self, stamps) -> dict[TopicPartition, int]:
        self.asked.append(dict(stamps))
        special = {OFFSET_EARLIEST: 10, OFFSET_LATEST: 100}
        return {key: special.get(at, -1 if at > 1099 else max(at - 1000, 10)) for key, at in stamps.items()}


class TestResolve:
    @pytest.mark.parametrize(
        ("bound", "expected"),
        [
            (OffsetBound(everywhere=OFFSET_EARLIEST), {A0: 10, A1: 10}),
            (OffsetBound(everywhere=OFFSET_LATEST), {A0: 100, A1: 100}),
            (OffsetBound(offsets={A0: 33, A1: OFFSET_LATEST}), {A0: 33, A1: 100}),
            (OffsetBound(offsets={A0: OFFSET_EARLIEST, A1: 5}), {A0: 10, A1: 5}),
            (OffsetBound(timestamps=1050), {A0: 50, A1: 50}),
            (OffsetBound(timestamps={A0: 0, A1: 1099}), {A0: 10, A1: 99}),
        ],
    )
    def test_what_a_bound_means(self, bound: OffsetBound, expected: dict) -> None:
        assert resolve(bound, [A1, A0], FakeLog().look_up, missing="error") == expected

    def test_offsets_alone_need_no_request(self) -> None:
        log = FakeLog()
        resolve(OffsetBound(offsets={A0: 1}), [A0], log.look_up, missing="error")
        assert log.asked == []

    def test_a_time_without_a_record(self) -> None:
        late = OffsetBound(timestamps={A0: 1050, A1: 5000}, option="startingTimestamp")
        assert resolve(late, [A0, A1], FakeLog().look_up, missing="latest") == {A0: 50, A1: 100}
        with pytest.raises(OptionError, match=r"option startingTimestamp: a-1 has no record at or after 5000 ms"):
            resolve(late, [A0, A1], FakeLog().look_up, missing="error")

    @pytest.mark.parametrize("field", ["offsets", "timestamps"])
    def test_partitions_have_to_be_those_that_are_read(self, field: str) -> None:
        with pytest.raises(OptionError, match="leaves out a-1"):
            resolve(OffsetBound(**{field: {A0: 1}}), [A0, A1], FakeLog().look_up, missing="error")
        with pytest.raises(OptionError, match="contains b-0, which the query does not read"):
            resolve(OffsetBound(**{field: {A0: 1, B0: 1}}), [A0], FakeLog().look_up, missing="error")


class TestCheckedRanges:
    def test_empty_ranges_are_left_out(self) -> None:
        found, losses = checked_ranges(
            {A0: 5, A1: 7, B0: 9}, {A0: 5, A1: 8, B0: 2}, {A0: 0, A1: 0, B0: 0}, {A0: 9, A1: 9, B0: 9},
            fail_on_data_loss=True,
        )  # fmt: skip
        assert (found, losses) == ({A1: (7, 8)}, [])

    @pytest.mark.parametrize(
        ("start", "end", "left", "message"),
        [
            (5, 50, (10, 50), "offsets 5 to 10 of a-0 have aged out"),
            (5, 8, None, "offsets 5 to 8 of a-0 have aged out"),
            (20, 200, (20, 100), "a-0 ends at offset 100, below the requested 200"),
            (150, 200, None, "a-0 ends at offset 100"),
        ],
    )
    def test_what_is_gone(self, start: int, end: int, left: tuple[int, int] | None, message: str) -> None:
        bounds = {A0: start}, {A0: end}, {A0: 10}, {A0: 100}
        with pytest.raises(DataLoss, match=f"{message}.*failOnDataLoss"):
            checked_ranges(*bounds, fail_on_data_loss=True)
        found, losses = checked_ranges(*bounds, fail_on_data_loss=False)
        assert found == ({} if left is None else {A0: left})
        assert message in losses[0]

    @given(*[st.dictionaries(st.just(A0), st.integers(0, 50), min_size=1)] * 4)
    def test_ranges_lie_within_what_is_asked_and_what_is_there(self, starts, ends, low, high) -> None:
        found, losses = checked_ranges(starts, ends, low, high, fail_on_data_loss=False)
        asked = set(range(starts[A0], ends[A0]))
        start, end = found.get(A0, (0, 0))
        assert set(range(start, end)) == asked & set(range(low[A0], high[A0]))
        assert bool(losses) == bool(asked - set(range(low[A0], high[A0])))


class TestFairShares:
    @given(st.dictionaries(keys, st.integers(0, 10**12)), st.integers(1, 10**13), st.integers(0, 100))
    def test_the_limit_is_used_up_and_never_passed(self, backlog: dict, limit: int, turn: int) -> None:
        shares = fair_shares(backlog, limit, turn)
        assert sum(shares.values()) == min(limit, sum(backlog.values()))
        assert all(0 < share <= backlog[key] for key, share in shares.items())
        waiting = [key for key, size in backlog.items() if size]
        if limit >= len(waiting):
            assert set(shares) == set(waiting)

    @given(st.dictionaries(keys, st.integers(1000, 10**9), min_size=2), st.integers(1000, 10**6))
    def test_shares_go_by_backlog(self, backlog: dict, limit: int) -> None:
        total = sum(backlog.values())
        for key, share in fair_shares(backlog, limit).items():
            assert abs(share - limit * backlog[key] / total) <= len(backlog) + 2 or limit >= total

    def test_below_their_number_partitions_take_turns(self) -> None:
        backlog = {TopicPartition("a", number): 100 if number == 0 else 1 for number in range(5)}
        seen: set[TopicPartition] = set()
        for turn in range(0, 10, 2):
            shares = fair_shares(backlog, 2, turn)
            assert list(shares.values()) == [1, 1]
            seen |= set(shares)
        assert seen == set(backlog)


pieces_of_a_partition = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 10**9)), min_size=1, max_size=20
)  # offsets and bytes of each


def laid_out(lengths: list[tuple[int, int]], start: int = 7) -> list[OffsetRange]:
    found = []
    for length, size in lengths:
        found.append(OffsetRange(start, start + length, size))
        start += length
    return found


class TestCutting:
    @given(pieces_of_a_partition, st.integers(0, 10**10))
    def test_a_cut_by_size_makes_progress_and_stays_inside(self, lengths: list, size: int) -> None:
        pieces = laid_out(lengths)
        cut = end_at_size(pieces, size)
        assert pieces[0].start < cut <= pieces[-1].end
        before = sum(p.size * max(0, min(cut, p.end) - p.start) / (p.end - p.start) for p in pieces)
        assert before <= size + 1 or cut == pieces[0].start + 1
        assert end_at_size(pieces, size + 10**6) >= cut

    @given(pieces_of_a_partition, pieces_of_a_partition, st.integers(1, 60))
    def test_cut_pieces_cover_the_same_and_are_enough(self, one: list, two: list, count: int) -> None:
        given_pieces = [Piece(A0, *r) for r in laid_out(one)] + [Piece(B0, *r) for r in laid_out(two)]
        found = split_to_count(given_pieces, count)
        total = sum(piece.end - piece.start for piece in given_pieces)
        assert len(found) == max(len(given_pieces), min(count, total))
        assert sum(piece.size for piece in found) == sum(piece.size for piece in given_pieces)
        for key, wanted in ((A0, one), (B0, two)):
            at = 7
            for piece in [piece for piece in found if piece.key == key]:
                assert piece.start == at < piece.end
                at = piece.end
            assert at == 7 + sum(length for length, _ in wanted)

    def test_the_largest_is_cut_first(self) -> None:
        found = split_to_count([Piece(A0, 0, 10, 100), Piece(B0, 0, 10, 1000)], 4)
        assert found == [Piece(A0, 0, 10, 100), Piece(B0, 0, 2, 200), Piece(B0, 2, 5, 300), Piece(B0, 5, 10, 500)]

    def test_nothing_stays_nothing(self) -> None:
        assert split_to_count([], 5) == []
        assert split_to_offsets([], 5) == []

    @given(pieces_of_a_partition, st.integers(1, 300))
    def test_no_piece_has_more_offsets_than_the_limit(self, lengths: list, limit: int) -> None:
        whole = [Piece(A0, *r) for r in laid_out(lengths)]
        found = split_to_offsets(whole, limit)
        assert all(0 < piece.end - piece.start <= limit for piece in found)
        assert len(found) == sum(-(-(piece.end - piece.start) // limit) for piece in whole)
        assert [piece.start for piece in found[1:]] == [piece.end for piece in found[:-1]]
        assert (found[0].start, found[-1].end) == (whole[0].start, whole[-1].end)
        assert sum(piece.size for piece in found) == sum(piece.size for piece in whole)
