"""Mirrors of opposite directions: the second one is refused, and prefixes keep their copies apart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.mirror import Mirror, MirrorLoop, Progress, TopicFilter
from kafkalite.mirror.embedded import EmbeddedMirror, EmbeddedOptions
from kafkalite.model import TopicPartition
from tests.kit.processes.broker import free_port, wait_until

pytestmark = pytest.mark.integration

READY_S = 60
FAST = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    """Three clusters."""
    with Broker(FAST) as one, Broker(FAST) as two, Broker(FAST) as three:
        yield [one, two, three]


def copy(source: Broker, target: Broker, name: str, *options: str) -> int:
    both = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
    return main(["mirror", *both, "--name", name, "-e", "-q", *options])


def values(broker: Broker, topic: str) -> list[bytes | None]:
    with Client(broker.bootstrap_servers) as client:
        chunks = client.read(topic, 0, end=client.end_offset(topic, 0), isolation=1)
        return [record.value for chunk in chunks for record in chunk.records()]


def names(broker: Broker) -> set[str]:
    with Client(broker.bootstrap_servers) as client:
        return {name for name in client.topics() if not name.startswith(("__", "kafkalite."))}


def produce(broker: Broker, topic: str, items: list[bytes]) -> None:
    with Client(broker.bootstrap_servers) as client:
        if not client.partition_counts([topic]):
            client.admin.create_topic(topic, 1)
        client.produce(topic, 0, items)


def test_the_second_of_two_opposite_mirrors_is_refused(
    brokers: list[Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"a"] * 10)
    produce(two, "own", [b"b"])
    assert copy(one, two, "there", "--topics", "orders") == 0
    capsys.readouterr()
    assert copy(two, one, "back") == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "topic orders in the source is a copy of the target's topic orders, made by mirror there" in error
    assert "--prefix" in error
    assert (values(one, "orders"), names(one)) == ([b"a"] * 10, {"orders"})
    assert copy(two, one, "back", "--exclude", "orders") == 0
    assert values(one, "own") == [b"b"]
    assert copy(one, two, "there", "--topics", "orders") == 0


def test_a_prefix_keeps_copies_apart(brokers: list[Broker], capsys: pytest.CaptureFixture[str]) -> None:
    """As MirrorMaker 2 with an alias for each cluster: however often both run, each record is in each cluster once."""
    one, two, _ = brokers
    produce(one, "orders", [b"a"] * 3)
    produce(two, "orders", [b"b"] * 2)
    for _ in range(3):
        assert copy(one, two, "there", "--prefix", "one.") == 0
        assert copy(two, one, "back", "--prefix", "two.") == 0
    assert (names(one), names(two)) == ({"orders", "two.orders"}, {"orders", "one.orders"})
    assert (values(one, "orders"), values(one, "two.orders")) == ([b"a"] * 3, [b"b"] * 2)
    assert (values(two, "orders"), values(two, "one.orders")) == ([b"b"] * 2, [b"a"] * 3)
    assert "topic one.orders is not copied: in the source it is a copy from the target" in capsys.readouterr().err


def test_a_prefix_of_the_second_alone_is_enough(brokers: list[Broker]) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"a"] * 3)
    for _ in range(3):
        assert copy(one, two, "there") == 0
        assert copy(two, one, "back", "--prefix", "two.") == 0
    assert (names(one), names(two)) == ({"orders", "two.orders"}, {"orders"})
    assert values(one, "orders") == values(two, "orders") == values(one, "two.orders") == [b"a"] * 3


def test_another_prefix_copies_everything_to_the_other_names(brokers: list[Broker]) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"a"] * 3)
    assert copy(one, two, "there") == 0
    assert copy(one, two, "there", "--prefix", "one.") == 0
    assert values(two, "one.orders") == values(two, "orders") == [b"a"] * 3


def test_a_ring_of_three_is_refused(brokers: list[Broker], capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = brokers
    produce(one, "orders", [b"a"])
    assert copy(one, two, "first") == 0
    assert copy(two, three, "second") == 0
    assert copy(three, one, "third") == 2
    assert "topic orders in the source is a copy of the target's topic orders" in capsys.readouterr().err
    assert values(one, "orders") == [b"a"]


def test_a_ring_is_found_by_the_links_that_began_before_it_was_closed(brokers: list[Broker]) -> None:
    one, two, three = brokers
    for broker in brokers:
        produce(broker, "orders", [b"a"])
    assert copy(one, two, "first") == 0
    assert copy(three, one, "third") == 0
    statuses = [copy(two, three, "second"), copy(one, two, "first"), copy(two, three, "second")]
    assert statuses[-1] == 2


def test_mirrors_of_opposite_directions_that_begin_together_end(brokers: list[Broker]) -> None:
    """In either order: before its first record a mirror announces its topics, then reads the others' announcements."""
    one, two, _ = brokers
    produce(one, "orders", [b"a"])
    produce(two, "orders", [b"b"])
    gate, ended, stop = threading.Barrier(2), [], threading.Event()

    def work(source: Broker, target: Broker, name: str) -> None:
        with Client(source.bootstrap_servers) as from_, Client(target.bootstrap_servers) as to:
            mirror = Mirror(from_, to, name=name, topics=TopicFilter("orders"), refresh_s=0.1, commit_interval_s=0.05)
            gate.wait(READY_S)
            try:
                mirror.run(stop)
            except MirrorLoop as error:
                ended.append(str(error))
            mirror.close()

    threads = [threading.Thread(target=work, args=args) for args in ((one, two, "there"), (two, one, "back"))]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: ended, READY_S, "an end")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(values(one, "orders")) + len(values(two, "orders")) <= 3


def test_what_a_refused_mirror_said_of_itself_is_taken_back(brokers: list[Broker]) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"a"])
    produce(two, "orders", [b"b"])
    with Client(one.bootstrap_servers) as first, Client(two.bootstrap_servers) as second:
        mirror = Mirror(first, second, name="there", topics=TopicFilter("orders"))
        plain, looks = mirror._without_copies, []

        def looked(*arguments: object) -> object:
            found = plain(*arguments)
            if not looks:
                assert copy(two, one, "back", "--topics", "orders") == 0
            looks.append(found)
            return found

        mirror._without_copies = looked
        with pytest.raises(MirrorLoop):
            mirror.run(threading.Event(), to_end=True)
        mirror.close()
        first.refresh([])
        assert Progress(second, "there", first.cluster_id or "").load() == {}
    assert copy(two, one, "back", "--topics", "orders") == 0


def test_brokers_that_mirror_each_other_say_so_and_stop(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    file = tmp_path / "mirror.properties"
    file.write_text("topics=orders\nrefresh.topics.interval.seconds=0.2\n")
    mirrors = [EmbeddedMirror(EmbeddedOptions.load(f"127.0.0.1:{port}", None, file)) for port in reversed(ports)]
    settings = [
        {**FAST, "log.dirs": str(tmp_path / str(port)), "listeners": f"kafka://127.0.0.1:{port}"} for port in ports
    ]
    with Broker(settings[0], companions=[mirrors[0]]) as one, Broker(settings[1], companions=[mirrors[1]]):
        produce(one, "orders", [b"a"])
        wait_until(lambda: any(mirror.status.ended for mirror in mirrors), READY_S, "an end")
        assert "without end" in next(mirror.status.ended for mirror in mirrors if mirror.status.ended)
        assert len(values(one, "orders")) <= 2


def test_positions_of_groups_go_to_the_topics_with_the_prefix(brokers: list[Broker]) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"%d" % number for number in range(10)])
    with Client(one.bootstrap_servers) as client:
        client.groups.commit("readers", {TopicPartition("orders", 0): 7})
    assert copy(one, two, "there", "--prefix", "one.", "--sync-group-offsets", "--topics", "orders") == 0
    with Client(one.bootstrap_servers) as source, Client(two.bootstrap_servers) as target:
        before = {(key.topic, key.partition): row.offset for key, row in source.groups.committed("readers").items()}
        after = {(key.topic, key.partition): row.offset for key, row in target.groups.committed("readers").items()}
    assert (before, after) == ({("orders", 0): 7}, {("one.orders", 0): 7})


@pytest.mark.parametrize("prefix", ["a/", "kafkalite.mirror.", "x" * 249])
def test_a_prefix_that_no_topic_can_have(
    brokers: list[Broker], prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, _ = brokers
    assert copy(one, two, "there", "--prefix", prefix) == 2
    assert "is not a valid topic prefix" in capsys.readouterr().err


def test_the_summary_names_the_source_topics(brokers: list[Broker], capsys: pytest.CaptureFixture[str]) -> None:
    one, two, _ = brokers
    produce(one, "orders", [b"a"] * 3)
    assert copy(one, two, "there", "--prefix", "one.", "--json") == 0
    assert json.loads(capsys.readouterr().out)["topics"][0]["topic"] == "orders"
