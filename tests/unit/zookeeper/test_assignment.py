"""The assignment that all members work out alike: the documents' examples, and what holds for any group."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.zookeeper.assignment import assign, java_order, share, thread_ids
from kafkalite.zookeeper.nodes import BrokerPartition

PARTITIONS = [
    BrokerPartition(0, 0),
    BrokerPartition(0, 1),
    BrokerPartition(0, 2),
    BrokerPartition(1, 0),
    BrokerPartition(1, 1),
]


def by_thread(owners):
    found = {}
    for partition, thread in owners.items():
        found.setdefault(thread, []).append(str(partition))
    return found


def test_two_consumers_of_five_partitions():
    assert by_thread(assign(PARTITIONS, ["c1-0", "c2-0"])) == {"c1-0": ["0-0", "0-1", "0-2"], "c2-0": ["1-0", "1-1"]}


def test_two_consumers_of_four_streams_each():
    owners = by_thread(assign(PARTITIONS, thread_ids("c1", 4) + thread_ids("c2", 4)))
    assert owners == {"c1-0": ["0-0"], "c1-1": ["0-1"], "c1-2": ["0-2"], "c1-3": ["1-0"], "c2-0": ["1-1"]}


def test_partitions_and_threads_are_sorted_as_strings():
    partitions = [BrokerPartition(2, 0), BrokerPartition(10, 0), BrokerPartition(0, 2), BrokerPartition(0, 10)]
    owners = assign(partitions, ["t-10", "t-2"])
    assert owners == {
        BrokerPartition(0, 10): "t-10",
        BrokerPartition(0, 2): "t-10",
        BrokerPartition(10, 0): "t-2",
        BrokerPartition(2, 0): "t-2",
    }


def test_java_sorts_by_utf_16_units():
    beyond, below = "\U00010000", "\uffee"
    assert sorted([below, beyond], key=java_order) == [beyond, below]
    assert sorted([below, beyond]) == [below, beyond]


def test_without_threads_no_partition_has_an_owner():
    assert assign(PARTITIONS, []) == {}


@given(st.integers(0, 200), st.integers(1, 50))
def test_shares_are_contiguous_whole_and_even(partition_count, thread_count):
    shares = [share(index, partition_count, thread_count) for index in range(thread_count)]
    assert [place for part in shares for place in part] == list(range(partition_count))
    sizes = [len(part) for part in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


GROUPS = st.tuples(
    st.sets(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: BrokerPartition(*pair)), max_size=40),
    st.dictionaries(st.text("abc-_0123456789", min_size=1, max_size=8), st.integers(1, 5), max_size=8),
)


@given(GROUPS, st.randoms())
def test_members_find_the_same_owners_in_any_order_of_reads(group, chance):
    partitions, consumers = group
    threads = [thread for consumer, count in consumers.items() for thread in thread_ids(consumer, count)]
    expected = assign(partitions, threads)
    shuffled_partitions, shuffled_threads = list(partitions), list(threads)
    chance.shuffle(shuffled_partitions)
    chance.shuffle(shuffled_threads)
    assert assign(shuffled_partitions, shuffled_threads) == expected
    assert set(expected) == (partitions if threads else set())
    assert set(expected.values()) <= set(threads)
