"""Positions of groups against a list of all records that were copied, through gaps, restarts, holes and forgetting."""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import pytest

from kafkalite.mirror import offsets
from kafkalite.mirror.offsets import OffsetMap, OffsetUnknown, PartitionOffsets, Span
from kafkalite.model import TopicPartition
from tests.kit.harness.samples import sample

KEY = TopicPartition("t", 0)
IDS = (bytes(16), bytes(15) + b"\1")


class Topic:
    """Takes what a producer is given, and keeps what compaction would."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        self.size_max = 0

    def send(self, _topic, _partition, records) -> None:
        for record in records:
            self.rows.pop(record.key, None)
            self.rows[record.key] = record.value
            self.size_max = max(self.size_max, len(record.value or b""))


class Copying:
    """A source with gaps, and a target with others, by one random choice after the other."""

    def __init__(self, seed: int, *, dense: bool = False) -> None:
        self.dice = random.Random(seed)
        self.dense = dense
        self.topic = Topic()
        self.map = self.made()
        self.next = self.dice.choice([0, 17])
        self.end = self.dice.choice([0, 5])
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.map.begin(KEY, self.next, IDS, self.end, from_start=True)

    def made(self) -> OffsetMap:
        made = OffsetMap(None, "m", "cluster")  # type: ignore[arg-type]  # neither created nor loaded here
        made.restore(self.topic.rows.items())
        return made

    def source_offsets(self) -> list[int]:
        """Return the offsets that a transaction copies; the frontier moves past them, and maybe further."""
        found = []
        for _ in range(self.dice.randrange(30)):
            if self.dense or self.dice.random() < 0.7:
                found.append(self.next)
            self.next += 1
        self.next += 0 if self.dense else self.dice.choice([0, 1, 10])
        return found

    def copy(self, *, commit: bool = True, mapped: bool = True) -> None:
        """Copy a transaction, whose batches are split differently on the way."""
        began, sent = self.next, self.source_offsets()
        if sent and mapped:
            cuts = sorted(self.dice.sample(range(1, len(sent) + 1), len(sent) // 9))
            for part in filter(len, np.split(np.array(sent, np.int64), cuts)):
                if part[-1] - part[0] == len(part) - 1:
                    self.map.sent_run(KEY, int(part[0]), len(part))
                else:
                    self.map.sent_offsets(KEY, part)
        placed, left = [], len(sent)
        while left:
            count = self.dice.randint(1, left)
            if mapped:
                self.map.acknowledged(KEY, self.end, count)
            placed += range(self.end, self.end + count)
            self.end += count + self.dice.choice([0, 0, 3])  # others write there too
            left -= count
        self.end += 1  # the marker
        if not commit:
            self.next = began
            self.map.forget()
            return
        self.sources += sent
        self.targets += placed
        if mapped:
            self.map.write(self.topic, {KEY: self.next})  # type: ignore[arg-type]
            self.map.settle()

    def restart(self) -> None:
        self.map = self.made()
        self.map.begin(KEY, self.next, IDS, self.end, from_start=False)

    def right(self, offset: int) -> int | None:
        """The target's offset of the first record copied from `offset` on; None behind the last."""
        at = bisect_left(self.sources, offset)
        return self.targets[at] if at < len(self.targets) else None

    def last_before(self, offset: int) -> int:
        at = bisect_left(self.sources, offset)
        return self.targets[at - 1] if at else -1


@pytest.mark.parametrize("seed", sample(range(40), 10))
def test_each_position_becomes_the_next_record_that_was_copied(seed: int) -> None:
    copying = Copying(seed)
    for _ in range(copying.dice.randint(1, 200)):
        copying.copy(commit=copying.dice.random() < 0.9)
        if copying.dice.random() < 0.05:
            copying.restart()
    known = copying.map.partitions[KEY]
    for offset in range(copying.next + 20):
        found, right = known.translate(offset), copying.right(offset)
        assert found is not None
        # between two records any offset is as good
        assert copying.last_before(offset) < found
        assert right is None or found <= right
        if offset in copying.sources:
            assert found == right


@pytest.mark.parametrize("seed", range(10))
def test_where_a_mirror_ran_without_offsets_a_position_is_before_what_it_copied(seed: int) -> None:
    copying = Copying(seed, dense=True)
    for _ in range(20):
        copying.copy()
    began, first = copying.next, copying.end
    for _ in range(5):
        copying.copy(mapped=False)
    ended = copying.next
    copying.restart()
    for _ in range(5):
        copying.copy()
    known = copying.map.partitions[KEY]
    for offset in range(began + 1, ended):
        found = known.translate(offset)
        assert found is not None
        assert copying.last_before(began) < found <= first
    for offset in [*range(18, began), *range(ended, copying.next)]:
        assert known.translate(offset) == copying.right(offset)


def test_before_the_first_span_nothing_is_known() -> None:
    known = PartitionOffsets(IDS, [Span(100, 100, 7, 7)])
    assert known.translate(99) is None
    assert known.translate(100) == known.translate(1000) == 7


def test_what_is_forgotten_is_the_oldest_and_never_leads_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "EXACT_SPANS_KEPT", 2)
    monkeypatch.setattr(offsets, "EXACT_SPANS_MAX", 4)
    monkeypatch.setattr(offsets, "COARSE_SPANS_MAX", 6)
    monkeypatch.setattr(offsets, "RUNS_FULL", 3)
    copying = Copying(5)
    for turn in range(300):
        copying.copy()
        copying.map.thin({KEY: copying.dice.randrange(copying.next)} if turn % 3 else {})
        if turn % 50 == 49:
            copying.copy()
            copying.restart()
    known = copying.map.partitions[KEY]
    assert len(known.spans) <= 6 + 1 + 4 + 1
    exact = known.spans[-2].first
    for offset in range(copying.next):
        found, right = known.translate(offset), copying.right(offset)
        assert found is not None
        assert right is None or found <= right
        if offset >= exact and offset in copying.sources:
            assert found == right
    assert copying.map.partitions[KEY].spans[0].translate(0) <= copying.targets[0]


def test_a_transaction_with_many_gaps_makes_records_of_a_bounded_size() -> None:
    copying = Copying(1)
    scattered = np.arange(0, 100_000, 2, dtype=np.int64) + copying.next
    copying.map.sent_offsets(KEY, scattered)
    copying.map.acknowledged(KEY, 1000, len(scattered))
    copying.map.write(copying.topic, {KEY: int(scattered[-1]) + 1})  # type: ignore[arg-type]
    copying.map.settle()
    assert copying.topic.size_max < 500_000
    for known in (copying.map.partitions[KEY], copying.made().partitions[KEY]):
        assert [known.translate(int(offset)) for offset in scattered] == list(range(1000, 1000 + len(scattered)))


def test_an_offset_that_the_target_does_not_remember_makes_the_transaction_be_done_again() -> None:
    copying = Copying(2)
    copying.map.sent_run(KEY, copying.next, 3)
    copying.map.acknowledged(KEY, -1, 3)
    with pytest.raises(OffsetUnknown):
        copying.map.write(copying.topic, {KEY: copying.next + 3})  # type: ignore[arg-type]
    copying.map.forget()
    copying.copy()


def test_recreated_topics_start_over() -> None:
    copying = Copying(3)
    for _ in range(20):
        copying.copy()
    others = (IDS[0], bytes(15) + b"\2")
    again = copying.made()
    again.begin(KEY, 0, others, 0, from_start=True)
    again.sent_run(KEY, 0, 5)
    again.acknowledged(KEY, 0, 5)
    again.write(copying.topic, {KEY: 5})  # type: ignore[arg-type]
    again.settle()
    kept = copying.made().partitions[KEY]
    assert kept.ids == others
    assert [kept.translate(offset) for offset in range(7)] == [0, 1, 2, 3, 4, 5, 5]
