"""Properties of every assignment for any group: complete, allowed, balanced, and as sticky as possible."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.broker.coordinator.assignors import ASSIGNORS, Subscriber, by_range, uniform

TOPICS = [bytes([number]) * 16 for number in range(1, 5)]

few = settings(max_examples=40, deadline=None)


@st.composite
def groups(draw, alike=False):
    """Members with subscriptions and what they had, and topics with partition counts."""
    counts = {topic: draw(st.integers(1, 5)) for topic in TOPICS[: draw(st.integers(1, 4))]}
    names = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    subscriptions = st.sets(st.sampled_from(sorted(counts)), min_size=0 if not alike else 1)
    shared = draw(subscriptions)
    had = {name: {} for name in names}
    for topic in TOPICS:  # of topics that are gone, and partitions that are gone, too
        for number in range(6):
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                had[owner].setdefault(topic, set()).add(number)
    members = {
        name: Subscriber(
            frozenset(shared if alike else draw(subscriptions)),
            {topic: frozenset(numbers) for topic, numbers in had[name].items()},
        )
        for name in names
    }
    return members, counts


def listed(assignment):
    return [(topic, number) for topic, numbers in assignment.items() for number in numbers]


def check_whole(members, counts, result):
    """Every partition that somebody subscribes to has one owner, who subscribes to it; nothing else is given."""
    assert set(result) == set(members)
    given_out = [partition for assignment in result.values() for partition in listed(assignment)]
    wanted = {
        (topic, number)
        for topic, count in counts.items()
        if any(topic in member.topics for member in members.values())
        for number in range(count)
    }
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    for name, assignment in result.items():
        assert set(assignment) <= members[name].topics
        assert all(assignment.values())


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@few
@given(group=groups())
def test_every_partition_once_and_only_to_subscribers(assign, group):
    members, counts = group
    check_whole(members, counts, assign(members, counts))


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@few
@given(group=groups())
def test_what_was_assigned_is_assigned_again(assign, group):
    members, counts = group
    result = assign(members, counts)
    again = {name: Subscriber(member.topics, result[name]) for name, member in members.items()}
    assert assign(again, counts) == result


@few
@given(group=groups(alike=True))
def test_uniform_of_equal_subscriptions_differs_by_one_at_most(group):
    members, counts = group
    sizes = [len(listed(assignment)) for assignment in uniform(members, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@few
@given(group=groups(alike=True))
def test_uniform_of_equal_subscriptions_moves_no_more_than_it_must(group):
    """Kept: of each member's what fits its share, where the larger shares go to those who had most."""
    members, counts = group
    result = uniform(members, counts)
    topics = next(iter(members.values())).topics
    had = {
        name: {(t, n) for t, n in listed(member.before) if t in topics and n < counts[t]}
        for name, member in members.items()
    }
    least, left_over = divmod(sum(counts[topic] for topic in topics), len(members))
    shares = [least + 1] * left_over + [least] * (len(members) - left_over)
    kept_at_best = sum(map(min, sorted(map(len, had.values()), reverse=True), shares))
    assert sum(len(had[name] & set(listed(result[name]))) for name in members) == kept_at_best


@few
@given(group=groups())
def test_uniform_of_different_subscriptions_cannot_be_evened_out_by_moving_one(group):
    members, counts = group
    result = {name: set(listed(assignment)) for name, assignment in uniform(members, counts).items()}
    for giver, taker in combinations(members, 2):
        for rich, poor in ((giver, taker), (taker, giver)):
            could_move = any(topic in members[poor].topics for topic, _ in result[rich])
            assert not could_move or len(result[rich]) - len(result[poor]) <= 1


@few
@given(group=groups())
def test_uniform_of_different_subscriptions_is_as_even_as_can_be(group):
    """No assignment has a smaller sum of squares: by brute force over maximum flows with a bound for each load."""
    members, counts = group
    loads = sorted((len(listed(assignment)) for assignment in uniform(members, counts).values()), reverse=True)
    if loads[0] > 0:
        assert not _fits(members, counts, loads[0] - 1), "the fullest member could have less"


def _fits(members, counts, most):
    """Return whether members can share all partitions with at most `most` each: a bipartite matching by augmenting
    paths.
    """
    partitions = [
        (topic, number)
        for topic, count in counts.items()
        if any(topic in member.topics for member in members.values())
        for number in range(count)
    ]
    held = {name: [] for name in members}

    def place(partition, seen):
        for name in members:
            if partition[0] in members[name].topics and name not in seen:
                seen.add(name)
                if len(held[name]) < most:
                    held[name].append(partition)
                    return True
                for index, other in enumerate(held[name]):
                    if place(other, seen):
                        held[name][index] = partition
                        return True
        return False

    return all(place(partition, set()) for partition in partitions)


@few
@given(group=groups())
def test_range_cuts_each_topic_evenly(group):
    members, counts = group
    result = by_range(members, counts)
    for topic in counts:
        sizes = [len(result[name].get(topic, ())) for name, member in members.items() if topic in member.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_range_gives_the_same_numbers_of_alike_topics_to_the_same_member():
    """So that records of equal keys in two topics meet: a join."""
    counts = {TOPICS[0]: 7, TOPICS[1]: 7}
    members = {name: Subscriber(frozenset(counts), {}) for name in "abc"}
    result = by_range(members, counts)
    assert {name: list(assignment.values()) for name, assignment in result.items()} == {
        "a": [frozenset({0, 1, 2})] * 2,
        "b": [frozenset({3, 4})] * 2,
        "c": [frozenset({5, 6})] * 2,
    }


def test_uniform_spreads_a_topic_over_members():
    counts = {TOPICS[0]: 2, TOPICS[1]: 2}
    members = {name: Subscriber(frozenset(counts), {}) for name in "ab"}
    assert [set(assignment) for assignment in uniform(members, counts).values()] == [set(counts)] * 2


def test_uniform_evens_out_over_a_third_member():
    """Only a chain helps: a can give to b alone, and b to c."""
    one, two = TOPICS[:2]
    members = {
        "a": Subscriber(frozenset({one}), {one: frozenset(range(4))}),
        "b": Subscriber(frozenset({one, two}), {two: frozenset(range(3))}),
        "c": Subscriber(frozenset({two}), {}),
    }
    sizes = {name: len(listed(assignment)) for name, assignment in uniform(members, {one: 4, two: 3}).items()}
    assert sorted(sizes.values()) == [2, 2, 3]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_what_two_were_meant_to_have_goes_to_one(assign):
    """So it is when a broker died while it wrote an assignment down."""
    topic = TOPICS[0]
    members = {name: Subscriber(frozenset({topic}), {topic: frozenset({0, 1})}) for name in "ab"}
    check_whole(members, {topic: 4}, assign(members, {topic: 4}))


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_group_without_members_or_partitions(assign):
    assert assign({}, {}) == {}
    assert assign({"a": Subscriber(frozenset(), {})}, {}) == {"a": {}}
