"""Properties of every replica placement plan, for any cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.model import TopicPartition
from kafkalite.placement.planner import Goal, PlanError, Replicas, copies, plan

Present = dict[TopicPartition, Replicas]
Racks = dict[int, str | None]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Present, Racks]:
    """Partitions with any replicas, over brokers with racks or without."""
    brokers = list(range(1, 1 + draw(st.integers(2, 7))))
    names = st.sampled_from(["a", "b", "c"]) if draw(st.booleans()) else st.none()
    racks = {broker: draw(names) for broker in brokers}
    replicas = st.lists(st.sampled_from(brokers), min_size=1, max_size=4, unique=True)
    rows = draw(st.lists(replicas, max_size=25))
    return {TopicPartition("t", number): tuple(row) for number, row in enumerate(rows)}, racks


def applied(present: Present, wanted: Present) -> Present:
    return {**present, **wanted}


def racks_of(racks: Racks, replicas: Replicas) -> set[object]:
    return {racks[broker] or broker for broker in replicas}


@given(clusters(), st.data())
def test_a_drained_broker_has_nothing_and_nothing_else_is_copied(
    cluster: tuple[Present, Racks], data: st.DataObject
) -> None:
    present, racks = cluster
    drained = data.draw(st.sampled_from(sorted(racks)))
    goal = Goal(brokers=frozenset(racks) - {drained})
    too_many = any(len(replicas) > len(goal.brokers) for replicas in present.values())
    if too_many:
        with pytest.raises(PlanError, match="can hold replicas"):
            plan(present, present, racks, goal)
        return
    wanted = plan(present, present, racks, goal)
    assert wanted.keys() == {key for key, replicas in present.items() if drained in replicas}
    for key, replicas in wanted.items():
        assert drained not in replicas
        assert len(set(replicas)) == len(replicas) == len(present[key])
        assert len(copies(present[key], replicas)) == 1
        kept = tuple(broker for broker in present[key] if broker != drained)
        assert [broker for broker in replicas if broker in kept] == list(kept)
        best = max(len(racks_of(racks, (*kept, new))) for new in goal.brokers.difference(kept))
        assert len(racks_of(racks, replicas)) == best


@given(clusters(), st.integers(1, 5))
def test_a_replication_factor_is_reached_with_the_fewest_copies(cluster: tuple[Present, Racks], factor: int) -> None:
    present, racks = cluster
    goal = Goal(brokers=frozenset(racks), replication_factor=factor)
    if factor > len(racks):
        if present:
            with pytest.raises(PlanError):
                plan(present, present, racks, goal)
        return
    wanted = plan(present, present, racks, goal)
    assert wanted.keys() == {key for key, replicas in present.items() if len(replicas) != factor}
    for key, replicas in wanted.items():
        assert len(set(replicas)) == len(replicas) == factor
        assert len(copies(present[key], replicas)) == max(0, factor - len(present[key]))
        assert replicas[0] == present[key][0]
        if factor > len(present[key]):
            before, all_racks = racks_of(racks, present[key]), racks_of(racks, tuple(racks))
            widest = len(before) + min(factor - len(present[key]), len(all_racks - before))
            assert len(racks_of(racks, replicas)) == widest
        else:
            widest = min(factor, len(racks_of(racks, present[key])))
            assert len(racks_of(racks, replicas)) == widest


@settings(deadline=None)
@given(clusters())
def test_what_is_spread_is_even_in_as_many_racks_and_stays(cluster: tuple[Present, Racks]) -> None:
    present, racks = cluster
    goal = Goal(brokers=frozenset(racks), spread=True)
    if any(len(replicas) > len(racks) for replicas in present.values()):
        return
    after = applied(present, plan(present, present, racks, goal))
    for key, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(present[key])
        assert len(racks_of(racks, replicas)) == min(len(replicas), len(racks_of(racks, tuple(racks))))
    if len(racks_of(racks, tuple(racks))) == len(racks):  # nothing to heed
        held = Counter(broker for replicas in after.values() for broker in replicas)
        counts = [held[broker] for broker in racks]
        assert max(counts) - min(counts) <= 1
    assert plan(after, after, racks, goal) == {}


def test_leaders_are_evened_out_without_a_copy() -> None:
    present = {TopicPartition("t", number): (1, 2, 3) for number in range(9)}
    wanted = plan(present, present, dict.fromkeys((1, 2, 3)), Goal(brokers=frozenset({1, 2, 3}), spread=True))
    assert all(set(replicas) == {1, 2, 3} for replicas in wanted.values())
    after = applied(present, wanted)
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3}


def test_leaders_are_evened_out_by_way_of_a_third() -> None:
    present = {
        TopicPartition("t", 0): (1, 2),
        TopicPartition("t", 1): (1, 2),
        TopicPartition("t", 2): (1, 2),
        TopicPartition("t", 3): (2, 3),
        TopicPartition("t", 4): (2, 3),
        TopicPartition("t", 5): (3, 2),
    }
    after = applied(
        present, plan(present, present, dict.fromkeys((1, 2, 3)), Goal(brokers=frozenset({1, 2, 3}), spread=True))
    )
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}


def test_a_new_broker_gets_its_part_and_no_more_is_copied() -> None:
    present = {TopicPartition("t", number): (1, 2) if number % 2 else (2, 1) for number in range(30)}
    wanted = plan(present, present, dict.fromkeys((1, 2, 3)), Goal(brokers=frozenset({1, 2, 3}), spread=True))
    assert sum(len(copies(present[key], replicas)) for key, replicas in wanted.items()) == 20


def test_small_partitions_move_first() -> None:
    present = {TopicPartition("t", number): (1,) for number in range(4)}
    sizes = {TopicPartition("t", number): size for number, size in enumerate((900, 5, 700, 3))}
    wanted = plan(present, present, dict.fromkeys((1, 2)), Goal(brokers=frozenset({1, 2}), spread=True), sizes)
    assert sorted(wanted) == [TopicPartition("t", 1), TopicPartition("t", 3)]


def test_who_is_out_of_service_keeps_what_it_has_and_gets_nothing() -> None:
    present = {TopicPartition("t", 0): (1, 4), TopicPartition("t", 1): (1,)}
    goal = Goal(brokers=frozenset({1, 2}), away=frozenset({4}), replication_factor=2)
    assert plan(present, present, dict.fromkeys((1, 2, 4)), goal) == {TopicPartition("t", 1): (1, 2)}


@pytest.mark.parametrize("replicas", [(1, 2, 4), (1, 4, 2), (4, 1, 2)])
def test_who_is_out_of_service_goes_first_where_there_are_too_many(replicas: Replicas) -> None:
    present = {TopicPartition("t", 0): replicas}
    goal = Goal(brokers=frozenset({1, 2}), away=frozenset({4}), replication_factor=2)
    assert plan(present, present, {1: "a", 2: "a", 4: "b"}, goal) == {TopicPartition("t", 0): (1, 2)}


def test_other_topics_count_and_stay() -> None:
    present = {TopicPartition("a", 0): (1,), TopicPartition("b", 0): (2,), TopicPartition("b", 1): (2,)}
    goal = Goal(brokers=frozenset({1, 2, 3}), replication_factor=2)
    wanted = plan(present, [TopicPartition("a", 0)], dict.fromkeys((1, 2, 3)), goal)
    assert wanted == {TopicPartition("a", 0): (1, 3)}


def test_a_broker_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match="no running broker has id 9"):
        plan({}, [], {1: None}, Goal(brokers=frozenset({1, 9})))
