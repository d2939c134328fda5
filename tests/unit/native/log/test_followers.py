"""A leader's view of its followers: in-sync replicas, high watermark, replicas that may join the ISR, lagging ones.

The model is plain Python, written from the rules of Kafka's Partition and Replica; random runs compare the two.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from kafkalite._native.log.followers import BrokerEpochs, Followers
from tests.kit.harness.samples import sample

LAG_S = 30.0
LEADER = 1


def followed(*replicas: int, in_sync: tuple[int, ...] = (), minimum: int = 1, start: int = 0) -> Followers:
    """Followers of a log that begins its epoch at `start`, at second 100; their brokers are of epoch 7."""
    brokers = BrokerEpochs()
    brokers.use([(replica, 7, True, True) for replica in (LEADER, *replicas)])
    followers = Followers(brokers, LAG_S, lambda _log: None)
    followers.use_min(minimum)
    followers.begin(replicas, (LEADER, *in_sync), start, 100.0)
    return followers


def test_a_follower_in_sync_of_which_nothing_is_known_holds_the_high_watermark() -> None:
    followers = followed(2, 3, in_sync=(2, 3))
    assert followers.high_watermark(10, 100.0) == -1
    followers.note_fetch(2, 8, 0, 7, 10, 101.0)
    assert followers.high_watermark(10, 101.0) == -1
    followers.note_fetch(3, 9, 0, 7, 10, 101.0)
    assert followers.high_watermark(10, 101.0) == 8


def test_a_leader_that_is_in_sync_alone_holds_nothing_back() -> None:
    assert followed(2, 3).high_watermark(10, 100.0) == 10


def test_one_that_is_caught_up_is_not_outrun_while_it_is_not_in_sync_yet() -> None:
    followers = followed(2)
    followers.note_fetch(2, 10, 0, 7, 10, 101.0)
    assert followers.high_watermark(12, 101.0) == 10
    assert followers.high_watermark(12, 101.0 + LAG_S) == 10
    assert followers.high_watermark(12, 101.1 + LAG_S) == 12
    followers.brokers.use([(2, 7, True, False)])
    assert followers.high_watermark(12, 101.0) == 12, "one that is about to stop is not waited for"


def test_one_that_is_proposed_counts_at_once_and_one_that_is_to_leave_still_does() -> None:
    followers = followed(2, 3, in_sync=(3,))
    followers.note_fetch(2, 4, 0, 7, 10, 0.0)
    followers.note_fetch(3, 6, 0, 7, 10, 0.0)
    assert followers.high_watermark(10, 1e6) == 6
    followers.propose((LEADER, 3, 2))
    assert (followers.high_watermark(10, 1e6), followers.maximal_count, followers.in_sync_count) == (4, 3, 2)
    followers.set_in_sync((LEADER, 3))
    followers.propose((LEADER,))
    assert (followers.high_watermark(10, 1e6), followers.maximal_count) == (6, 2)
    followers.set_in_sync((LEADER,))
    assert followers.high_watermark(10, 1e6) == 10


@pytest.mark.parametrize(("minimum", "seen"), [(1, 10), (2, -1), (9, -1)])
def test_too_few_in_sync_hold_the_high_watermark(minimum: int, seen: int) -> None:
    followers = followed(2, 3, minimum=minimum)
    assert followers.high_watermark(10, 1e6) == seen
    assert followers.under_min == (seen < 0)


def test_no_more_have_to_be_in_sync_than_there_are_replicas() -> None:
    followers = followed(2, in_sync=(2,), minimum=5)
    followers.note_fetch(2, 10, 0, 7, 10, 101.0)
    assert followers.high_watermark(10, 101.0) == 10
    assert (followers.at_min, followers.under_min, followers.under_replicated) == (True, False, False)


def test_a_follower_may_join_once_it_has_what_is_visible_and_the_beginning_of_the_epoch() -> None:
    followers = followed(2, start=5)
    followers.note_fetch(2, 4, 0, 7, 10, 101.0)
    assert followers.joinable(3, 101.0) == []
    followers.note_fetch(2, 5, 0, 7, 10, 102.0)
    assert followers.joinable(6, 102.0) == []
    assert followers.joinable(5, 102.0 + LAG_S + 1) == [], "it has not fetched for long"
    assert followers.joinable(5, 102.0 + LAG_S) == [2]
    followers.propose((LEADER, 2))
    assert followers.joinable(5, 102.0) == [], "one change at a time"


@pytest.mark.parametrize(
    ("fetched_in", "registered", "may"), [(7, 7, True), (-1, 7, True), (6, 7, False), (7, 8, False)]
)
def test_a_follower_may_join_only_in_the_life_in_which_it_has_fetched(
    fetched_in: int, registered: int, *, may: bool
) -> None:
    followers = followed(2)
    followers.note_fetch(2, 10, 0, fetched_in, 10, 101.0)
    followers.brokers.use([(2, registered, True, True)])
    assert followers.joinable(10, 101.0) == ([2] if may else [])


def test_the_epochs_of_a_proposal_are_those_of_the_fetches() -> None:
    followers = followed(2, 3)
    followers.note_fetch(2, 1, 0, 7, 10, 101.0)
    assert followers.epochs_of((2, 3, 9)) == {2: 7, 3: -1, 9: -1}


def test_a_follower_lags_when_it_has_neither_all_nor_had_it_a_short_while_ago() -> None:
    followers = followed(2, 3, in_sync=(2, 3))
    assert followers.lagging(10, 100.0 + LAG_S) == []
    assert followers.lagging(10, 100.1 + LAG_S) == [2, 3]
    followers.note_fetch(2, 10, 0, 7, 10, 105.0)
    assert followers.lagging(12, 105.0 + LAG_S) == [3]
    assert followers.lagging(10, 1e6) == [3], "one that has all there is does not lag, however long it has not asked"


def test_a_follower_that_reads_what_was_there_a_fetch_ago_was_caught_up_then() -> None:
    followers = followed(2, in_sync=(2,))
    followers.note_fetch(2, 5, 0, 7, 10, 101.0)
    followers.note_fetch(2, 10, 0, 7, 20, 120.0)
    assert followers.lagging(30, 101.0 + LAG_S) == []
    assert followers.lagging(30, 101.1 + LAG_S) == [2]


def test_the_low_watermark_waits_for_the_living_alone() -> None:
    followers = followed(2, 3)
    assert followers.low(5) == -1
    followers.note_fetch(2, 9, 3, 7, 10, 101.0)
    followers.brokers.use([(2, 7, True, True), (3, 7, False, False)])
    assert followers.low(5) == 3
    followers.note_fetch(2, 9, 6, 7, 10, 101.0)
    assert followers.low(5) == 5


def test_what_is_known_of_those_that_stay_holds_when_replicas_change_and_not_in_another_epoch() -> None:
    followers = followed(2, 3, in_sync=(2, 3))
    followers.note_fetch(2, 9, 0, 7, 10, 101.0)
    followers.set_replicas((4, 2))
    assert [row[:2] for row in followers.states()] == [(4, -1), (2, 9)]
    followers.begin((4, 2), (LEADER, 2), 10, 200.0)
    assert [row[:2] for row in followers.states()] == [(4, -1), (2, -1)]


def test_who_is_no_follower_is_told_apart() -> None:
    with pytest.raises(KeyError):
        followed(2).note_fetch(9, 0, 0, -1, 0, 0.0)


# --- random runs beside a model ---------------------------------------------------------------------------------------


@dataclass
class ModelReplica:
    end: int = -1
    start: int = -1
    epoch: int | None = None
    leader_end: int = -1
    fetched_at: float = -math.inf
    caught_up_at: float = -math.inf


@dataclass
class Model:
    """A leader's view, by Kafka's rules and in no hurry."""

    replicas: dict[int, ModelReplica] = field(default_factory=dict)
    isr: set[int] = field(default_factory=lambda: {LEADER})
    proposed: set[int] | None = None
    minimum: int = 1
    epoch_start: int = 0
    brokers: dict[int, tuple[int, bool, bool]] = field(default_factory=dict)

    @property
    def maximal(self) -> set[int]:
        return self.isr | (self.proposed or set())

    def begin(self, replicas: list[int], isr: set[int], start: int, now: float) -> None:
        self.replicas = {replica: ModelReplica() for replica in replicas}
        for replica in isr & self.replicas.keys():
            self.replicas[replica].caught_up_at = now
        self.isr, self.proposed, self.epoch_start = isr, None, start

    def fetched(self, replica: int, offset: int, start: int, epoch: int, log_end: int, now: float) -> None:
        row = self.replicas[replica]
        if offset >= log_end:
            row.caught_up_at = max(row.caught_up_at, now)
        elif offset >= row.leader_end:
            row.caught_up_at = max(row.caught_up_at, row.fetched_at)
        row.end, row.start, row.epoch = offset, start, epoch
        row.leader_end, row.fetched_at = max(row.leader_end, log_end), now

    def eligible(self, replica: int) -> bool:
        epoch, _, may = self.brokers.get(replica, (-2, False, False))
        return may and self.replicas[replica].epoch in (-1, epoch)

    def caught_up(self, replica: int, log_end: int, now: float) -> bool:
        row = self.replicas[replica]
        return row.end == log_end or now - row.caught_up_at <= LAG_S

    def high_watermark(self, log_end: int, now: float) -> int:
        if len(self.isr) < min(self.minimum, len(self.replicas) + 1):
            return -1
        ends = [
            row.end
            for replica, row in self.replicas.items()
            if replica in self.maximal or (self.caught_up(replica, log_end, now) and self.eligible(replica))
        ]
        return min([log_end, *ends])

    def joinable(self, high_watermark: int, now: float) -> list[int]:
        if self.proposed is not None:
            return []
        return [
            replica
            for replica, row in self.replicas.items()
            if replica not in self.isr
            and now - row.fetched_at <= LAG_S
            and row.end >= max(high_watermark, self.epoch_start)
            and self.eligible(replica)
        ]

    def lagging(self, log_end: int, now: float) -> list[int]:
        return [each for each in self.replicas if each in self.isr and not self.caught_up(each, log_end, now)]

    def low(self, start: int) -> int:
        alive = [row.start for each, row in self.replicas.items() if self.brokers.get(each, (0, False, False))[1]]
        return min([start, *alive])


@pytest.mark.parametrize("seed", sample(range(30), 10))
def test_random_runs_go_as_in_the_model(seed: int) -> None:
    draw = random.Random(seed)
    brokers, model = BrokerEpochs(), Model()
    followers = Followers(brokers, LAG_S, lambda _log: None)
    others = [*range(2, 7)]
    now, log_end, high_watermark = 100.0, 0, 0

    def some() -> list[int]:
        return draw.sample(others, draw.randint(1, 4))

    def isr_of(replicas: list[int]) -> set[int]:
        return {LEADER, *(each for each in replicas if draw.random() < 0.6)}

    first = some()
    in_sync = isr_of(first)
    followers.begin(first, in_sync, 0, now)
    model.begin(first, in_sync, 0, now)
    for _ in range(400):
        now += draw.choice([0.0, 0.1, 1.0, 20.0])
        log_end += draw.choice([0, 0, 1, 5])
        act = draw.random()
        if act < 0.55:
            fetch = (draw.choice([*model.replicas]), draw.randint(0, log_end), draw.randint(0, 5))
            epoch = draw.choice([-1, 6, 7, 8])
            followers.note_fetch(*fetch, epoch, log_end, now)
            model.fetched(*fetch, epoch, log_end, now)
        elif act < 0.7:
            model.brokers = {
                each: (draw.choice([7, 8]), alive, alive and draw.random() < 0.8)
                for each in draw.sample(others, draw.randint(0, 5))
                for alive in [draw.random() < 0.8]
            }
            brokers.use((each, *row) for each, row in model.brokers.items())
        elif act < 0.8:
            wanted = isr_of([*model.replicas])
            followers.propose(wanted)
            model.proposed = (model.proposed or set()) | wanted
        elif act < 0.9:
            model.isr, model.proposed = isr_of([*model.replicas]), None
            followers.set_in_sync(model.isr)
        elif act < 0.93:
            replicas = some()
            followers.set_replicas(replicas)
            model.replicas = {each: model.replicas.get(each, ModelReplica()) for each in replicas}
            model.isr, model.proposed = isr_of(replicas), None
            followers.set_in_sync(model.isr)
        elif act < 0.95:
            replicas = some()
            in_sync = isr_of(replicas)
            followers.begin(replicas, in_sync, log_end, now)
            model.begin(replicas, in_sync, log_end, now)
        else:
            model.minimum = draw.randint(1, 4)
            followers.use_min(model.minimum)
        high_watermark = max(high_watermark, model.high_watermark(log_end, now))
        assert followers.high_watermark(log_end, now) == model.high_watermark(log_end, now)
        assert followers.joinable(high_watermark, now) == model.joinable(high_watermark, now)
        assert followers.lagging(log_end, now) == model.lagging(log_end, now)
        assert followers.low(3) == model.low(3)
        assert followers.maximal_count == len(model.maximal & {LEADER, *model.replicas})
