"""Who reads what: every partition one owner, even, sticky, and never two owners while it moves.

The state machine of the cooperative protocol is played with a few members: each applies its assignment as GroupReader
does, gives up what is gone, and rejoins when it gave up something.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.group.assignors import ASSIGNORS, CooperativeStickyAssignor, RangeAssignor, sticky
from kafkalite.model import TopicPartition
from kafkalite.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = ("a", "b", "c")
counts_of_topics = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 9)))
wishes = st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)


def keys(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def wanted(counts: dict[str, int], members: dict[str, Subscription]) -> set[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return {TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))}


def check(
    counts: dict[str, int], members: dict[str, Subscription], assignment: dict[str, list[TopicPartition]]
) -> None:
    """Every partition that somebody wants has exactly one owner, who wants it."""
    given_out = [key for found in assignment.values() for key in found]
    assert sorted(given_out) == sorted(wanted(counts, members))
    for member, found in assignment.items():
        assert {key.topic for key in found} <= set(members[member].topics)


def is_even(members: dict[str, Subscription], assignment: dict[str, list[TopicPartition]]) -> bool:
    """Whether no chain of handing on leads to somebody with two fewer: by trying all pairs, transitively."""
    reach = {
        (one, other)
        for one, other in itertools.permutations(members, 2)
        if {key.topic for key in assignment[one]} & set(members[other].topics)
    }
    for middle, one, other in itertools.product(members, repeat=3):
        if (one, middle) in reach and (middle, other) in reach:
            reach.add((one, other))
    return all(len(assignment[other]) > len(assignment[one]) - 2 for one, other in reach)


def subscriptions(topics: list[set[str]]) -> dict[str, Subscription]:
    return {f"m{index}": Subscription(tuple(sorted(names))) for index, names in enumerate(topics)}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(counts=counts_of_topics, topics=wishes)
def test_one_owner_each(name: str, counts: dict[str, int], topics: list[set[str]]) -> None:
    members = subscriptions(topics)
    check(counts, members, ASSIGNORS[name].assign(counts, members))


def test_range_is_javas() -> None:
    members = subscriptions([{"a", "b"}, {"a", "b"}, {"a"}])
    assignment = RangeAssignor().assign({"a": 7, "b": 3}, members)
    assert assignment == {
        "m0": [*keys("a", 0, 1, 2), *keys("b", 0, 1)],
        "m1": [*keys("a", 3, 4), *keys("b", 2)],
        "m2": keys("a", 5, 6),
    }


def test_range_puts_static_members_first() -> None:
    """In order of their instance ids, so that a restart with another member id changes nothing."""
    members = {
        "1": Subscription(("a",)),
        "2": Subscription(("a",), instance_id="z"),
        "3": Subscription(("a",), instance_id="y"),
    }
    assert RangeAssignor().assign({"a": 3}, members) == {"3": keys("a", 0), "2": keys("a", 1), "1": keys("a", 2)}


@given(counts_of_topics, wishes)
def test_sticky_is_as_even_as_can_be(counts: dict[str, int], topics: list[set[str]]) -> None:
    members = subscriptions(topics)
    assignment = sticky(counts, members)
    check(counts, members, assignment)
    assert is_even(members, assignment)


@given(
    counts_of_topics,
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(TOPICS), min_size=1),
            st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 10)), max_size=12),
            st.integers(-1, 3),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_sticky_survives_any_claims(counts, rows) -> None:
    """Claims of each other's partitions, of partitions that are gone, of topics not wanted, of any generation."""
    members = {
        f"m{index}": Subscription(tuple(sorted(topics)), None, tuple(TopicPartition(*key) for key in owned), generation)
        for index, (topics, owned, generation) in enumerate(rows)
    }
    assignment = sticky(counts, members)
    check(counts, members, assignment)
    assert is_even(members, assignment)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_no_more_moves_than_needed(partitions: int, count: int, leave: int, join: int) -> None:
    """All want the same: who stays keeps everything up to his share."""
    before = sticky({"a": partitions}, subscriptions([{"a"}] * count))
    stay = {f"m{index}" for index in range(leave, count)}
    members = {member: Subscription(("a",), None, tuple(before[member]), 1) for member in stay}
    members |= {f"new{index}": Subscription(("a",)) for index in range(join)}
    if not members:
        return
    after = sticky({"a": partitions}, members)
    share, extra = divmod(partitions, len(members))
    largest = sorted((len(before[member]) for member in stay), reverse=True)
    kept_at_most = sum(min(size, share + (index < extra)) for index, size in enumerate(largest))
    assert sum(len(set(before[member]) & set(after[member])) for member in stay) == kept_at_most


def test_the_younger_generation_is_believed() -> None:
    members = {
        "old": Subscription(("a",), None, tuple(keys("a", 0, 1)), 3),
        "new": Subscription(("a",), None, tuple(keys("a", 0, 1)), 4),
    }
    assert sticky({"a": 4}, members)["new"] == keys("a", 0, 1)


def test_a_generation_in_user_data_counts() -> None:
    """As Java's members of version 1 and librdkafka's send it: alone, or behind a list of partitions (KIP-54)."""
    for prefix in (b"", bytes(8)):
        members = {
            "old": Subscription(("a",), prefix + (3).to_bytes(4, "big"), tuple(keys("a", 0, 1))),
            "new": Subscription(("a",), prefix + (4).to_bytes(4, "big"), tuple(keys("a", 0, 1))),
        }
        assert sticky({"a": 4}, members)["new"] == keys("a", 0, 1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("join"), st.sets(st.sampled_from(TOPICS), min_size=1)),
            st.tuples(st.just("leave"), st.integers(0, 5)),
            st.tuples(st.just("grow"), st.sampled_from(TOPICS)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_cooperative_rounds_never_give_a_partition_two_owners(events) -> None:
    """After each change rounds follow until no member has to revoke a partition; then the assignment is the
    sticky one.
    """
    counts = {"a": 3, "b": 2, "c": 0}
    topics: dict[str, tuple[str, ...]] = {}
    owned: dict[str, list[TopicPartition]] = {}
    generations: dict[str, int] = {}
    names = itertools.count()
    generation = 0
    for kind, what in events:
        if kind == "join":
            name = f"m{next(names)}"
            topics[name], owned[name], generations[name] = tuple(sorted(what)), [], -1
        elif kind == "leave" and len(topics) > 1:
            name = sorted(topics)[what % len(topics)]
            del topics[name], owned[name], generations[name]
        elif kind == "grow":
            counts[what] += 1
        for _ in range(4):
            generation += 1
            members = {m: Subscription(topics[m], None, tuple(owned[m]), generations[m]) for m in topics}
            assignment = CooperativeStickyAssignor().assign(counts, members)
            held = [key for m in topics for key in set(owned[m]) | set(assignment[m])]
            assert len(held) == len(set(held)), "given before it was given up"
            gave_up = any(set(owned[m]) - set(assignment[m]) for m in topics)
            owned = {m: list(assignment[m]) for m in topics}
            generations = dict.fromkeys(topics, generation)
            if not gave_up:
                break
        else:
            raise AssertionError("the group does not come to rest")
        if topics:
            check(counts, members, owned)
            assert is_even(members, owned)


@given(
    st.lists(st.text(min_size=1, max_size=5), max_size=4),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2**31 - 1)), max_size=6, unique=True),
    st.integers(-1, 2**31 - 1),
    st.one_of(st.none(), st.text(max_size=3)),
)
def test_subscriptions_come_back(topics, user_data, owned, generation, rack) -> None:
    sent = Subscription(
        tuple(topics), user_data, tuple(sorted(TopicPartition(*key) for key in owned)), generation, rack
    )
    raw = encode_subscription(sent)
    assert decode_subscription(raw) == sent
    assert decode_subscription(raw + b"of a later version") == sent
    assert decode_assignment(encode_assignment(sent.owned)) == sent.owned
    for size in range(len(raw)):
        with pytest.raises(ValueError, match="bytes"):
            decode_subscription(raw[:size])


def test_golden_bytes() -> None:
    """Field by field as ConsumerProtocolSubscription.json has them."""
    raw = encode_subscription(Subscription(("t",), b"\x00\x00\x00\x07", tuple(keys("t", 2)), 7))
    assert raw.hex(" ", 1) == (
        "00 03"  # version
        " 00 00 00 01 00 01 74"  # topics
        " 00 00 00 04 00 00 00 07"  # user data
        " 00 00 00 01 00 01 74 00 00 00 01 00 00 00 02"  # owned partitions
        " 00 00 00 07"  # generation
        " ff ff"  # rack
    )
    assert decode_subscription(b"\x00\x00" + raw[2:17]).owned == ()
    assert decode_assignment(b"") == ()
    with pytest.raises(ValueError, match="array of -1"):
        decode_assignment(b"\x00\x00\xff\xff\xff\xff")
