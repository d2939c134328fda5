"""Values of nodes, compared with the formats that Kafka 0.7 uses (`kafkalite.classic`, fact 3)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.zookeeper.nodes import (
    COUNT_MAX,
    BrokerNode,
    BrokerPartition,
    FilterCounts,
    GroupPaths,
    NodeError,
    TopicCounts,
    broker_number,
    decode_count,
    decode_offset,
    decode_subscription,
    topic_broker_path,
)

NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)


def test_broker_is_creator_host_and_port():
    node = BrokerNode(3, "10.1.2.3-1340000000000", "10.1.2.3", 9092)
    assert node.encode() == b"10.1.2.3-1340000000000:10.1.2.3:9092"
    assert node.path == "/brokers/ids/3"
    assert BrokerNode.decode(3, node.encode()) == node


def test_broker_node_with_more_parts_is_read_by_its_first_three():
    assert BrokerNode.decode(0, b"c:h:1:more") == BrokerNode(0, "c", "h", 1)


@pytest.mark.parametrize(
    "value", [b"", b"host:9092", b"c:h:port", b"c:h:", b"c:h:" + b"9" * 5000, b"c::1", b"\xff\xfe"]
)
def test_broker_node_that_is_none(value):
    with pytest.raises(NodeError):
        BrokerNode.decode(0, value)


@pytest.mark.parametrize("host", ["::1", "a:b", "a/b", "a b", ""])
def test_host_that_cannot_stand_in_a_node(host):
    with pytest.raises(NodeError):
        BrokerNode(0, "creator", host, 1)


def test_partition_is_broker_and_number():
    assert str(BrokerPartition(10, 2)) == "10-2"
    assert BrokerPartition.parse("10-2") == BrokerPartition(10, 2)
    for text in ("", "1", "1-", "-1-2", "1-2-3", "a-b"):
        with pytest.raises(NodeError):
            BrokerPartition.parse(text)


def test_paths_of_a_group():
    paths = GroupPaths("g")
    assert paths.id_of("g_host-1") == "/consumers/g/ids/g_host-1"
    assert paths.owner("t", BrokerPartition(0, 1)) == "/consumers/g/owners/t/0-1"
    assert paths.offset("t", BrokerPartition(0, 1)) == "/consumers/g/offsets/t/0-1"
    assert topic_broker_path("t", 4) == "/brokers/topics/t/4"


def test_static_subscription_is_written_as_0_7_does():
    assert TopicCounts({"topic1": 4, "topic2": 1}).encode() == b'{ "topic1": 4,"topic2": 1 }'


@given(st.dictionaries(NAMES, st.integers(1, 100), min_size=1))
def test_static_subscription_reads_back(streams):
    assert decode_subscription(TopicCounts(streams).encode()) == TopicCounts(streams)


def test_any_json_map_of_counts_is_read():
    assert decode_subscription(b'{"a":1,\n "b" : 2}') == TopicCounts({"a": 1, "b": 2})


@pytest.mark.parametrize("marker", ["*", "!"])
def test_filter_subscription(marker):
    wanted = FilterCounts(marker, 4, "white.*")
    assert wanted.encode() == f"{marker}4{marker}white.*".encode()
    assert decode_subscription(wanted.encode()) == wanted


def test_filter_counts_every_topic_it_allows():
    topics = ["white1", "black", "white2"]
    assert FilterCounts("*", 2, "white.*").streams_of(topics) == {"white1": 2, "white2": 2}
    assert FilterCounts("!", 2, "white.*").streams_of(topics) == {"black": 2}


def test_bare_topic_name_of_old_clients_is_one_stream():
    assert decode_subscription(b"events") == TopicCounts({"events": 1})


@pytest.mark.parametrize("value", [b"", b"{", b'{"a":"b"}', b'{"a":true}', b"[1]", b'"x"'])
def test_subscription_that_is_none(value):
    with pytest.raises(NodeError):
        decode_subscription(value)


@given(st.binary(max_size=40))
def test_any_content_of_a_node_is_parsed_or_refused(value):
    for decode in (decode_subscription, decode_count, decode_offset, lambda data: BrokerNode.decode(0, data)):
        with contextlib.suppress(NodeError):
            decode(value)


def test_numbers():
    assert decode_count(b"5") == 5
    assert decode_offset(b"-1") == -1
    for value in (b"", b"-1", b"five"):
        with pytest.raises(NodeError):
            decode_count(value)


@pytest.mark.parametrize("value", [b"100001", b"9" * 5000])
def test_a_count_that_would_fill_the_memory_is_none(value):
    with pytest.raises(NodeError):
        decode_count(value)
    assert decode_count(b"100000") == COUNT_MAX


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": 100001}',
        b'{"a": 60000, "b": 60000}',
        b'{"a": -1}',
        b"*100001*.*",
        b"*" + b"9" * 5000 + b"*.*",
        b'{"a":' * 100_000,
    ],
)
def test_a_subscription_that_would_fill_the_memory_is_none(value):
    with pytest.raises(NodeError):
        decode_subscription(value)


@pytest.mark.parametrize("text", ["\u00b2-0", "1-" + "9" * 5000, "\u0661-0"])
def test_a_partition_whose_numbers_are_none(text):
    with pytest.raises(NodeError):
        BrokerPartition.parse(text)


@pytest.mark.parametrize(
    ("name", "number"), [("7", 7), ("\u00b2", None), ("\u0661", None), ("9" * 5000, None), ("", None)]
)
def test_a_broker_is_named_by_its_number(name, number):
    assert broker_number(name) == number
