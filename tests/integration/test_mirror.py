"""`kafkalite mirror` between two brokers: the copied records, its progress, and recovery from kill -9."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client, Producer
from kafkalite.errors import ProducerFenced
from kafkalite.mirror import Mirror, TopicFilter
from kafkalite.model import TopicPartition
from kafkalite.wire.record.batches import no_items
from kafkalite.wire.record.columns import BytesColumn, Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle as oracle
from tests.kit.oracles.classic_oracle import HELLO_0
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

pytestmark = pytest.mark.integration

STAMP = 1_700_000_000_000
READY_S = 60


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "log.flush.interval": 1,
        "flush.on.acks.all": False,
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}) as running:
        yield running


@pytest.fixture
def clients(source: Broker, target: Broker) -> Iterator[tuple[Client, Client]]:
    with Client(source.bootstrap_servers) as one, Client(target.bootstrap_servers) as two:
        yield one, two


def records(count: int, first: int = 0) -> list[Record]:
    return [
        Record(
            -1,
            STAMP + i,
            b"k%d" % i if i % 3 else None,
            b"value %d" % i if i % 7 else None,
            (("a", b"%d" % i), ("n", None)) if i % 2 else (),
        )
        for i in range(first, first + count)
    ]


def read(client: Client, topic: str, partition: int = 0) -> list[Record]:
    """Committed records, without their offsets, up to the log's end: markers may still be on their way."""
    chunks = client.read(topic, partition, end=client.end_offset(topic, partition), isolation=1)
    return [record._replace(offset=-1) for chunk in chunks for record in chunk.columns.records()]


def mirror(source: Broker, target: Broker, name: str, *options: str) -> int:
    address = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
    return main(["mirror", *address, "--name", name, *options])


def test_everything_of_a_record_is_kept(
    source: Broker, target: Broker, clients: tuple[Client, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic("kept", 3, configs={"retention.ms": "-1", "max.message.bytes": "2000000"})
    sent = records(3000)
    for partition in range(3):
        for codec in Codec:
            part = RecordColumns.from_records(sent[codec * 600 : codec * 600 + 600])
            one.produce("kept", partition, part, codec=codec, batch_size=40_000 if partition else 2000)
    assert mirror(source, target, "kept", "--topics", "kept", "-e", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["records"] == 9000
    assert [(row["topic"], row["records"]) for row in summary["topics"]] == [("kept", 9000)]
    for partition in range(3):
        assert read(two, "kept", partition) == sent
    entries = {entry.name: entry.value for entry in two.admin.describe_topic_configs("kept")}
    assert (entries["retention.ms"], entries["max.message.bytes"]) == ("-1", "2000000")


def test_large_batches_pass_as_they_are(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.create_topic("passed", 1)
    sent = RecordColumns.from_records(records(20_000))
    one.produce("passed", 0, sent, codec=Codec.GZIP, batch_size=400_000)
    worker = Mirror(one, two, name="passed", topics=TopicFilter("passed"))
    copied = worker.run(threading.Event(), to_end=True)
    assert (copied.record_count, worker._copier.passed > 1) == (20_000, True)
    worker.close()
    assert read(two, "passed") == list(sent.records())


def test_what_readers_of_committed_data_do_not_see_is_not_copied(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.create_topic("committed", 1)
    with one.producer(transactional_id="s") as producer:
        for number in range(10):
            producer.begin_transaction()
            producer.send("committed", 0, [b"%d" % number + bytes(300)] * 100)
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    run(one, two, "committed")
    assert [record.value for record in read(two, "committed")] == [
        b"%d" % number + bytes(300) for number in range(10) if number % 3 for _ in range(100)
    ]


def run(one: Client, two: Client, topic: str) -> int:
    """One run to the end; records copied."""
    worker = Mirror(one, two, name=topic, topics=TopicFilter(topic))
    try:
        return worker.run(threading.Event(), to_end=True).record_count
    finally:
        worker.close()


def test_a_second_run_copies_only_what_is_new(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.create_topic("again", 2)
    one.produce("again", 0, [b"a"] * 10)
    assert run(one, two, "again") == 10
    assert run(one, two, "again") == 0
    one.produce("again", 1, [b"b"] * 5)
    one.admin.add_partitions("again", 3)
    one.produce("again", 2, [b"c"] * 3)
    assert run(one, two, "again") == 8
    assert [len(read(two, "again", partition)) for partition in range(3)] == [10, 5, 3]


def test_what_aged_out_is_said(clients: tuple[Client, Client]) -> None:
    one, two = clients
    one.admin.create_topic("gone", 1)
    one.produce("gone", 0, [b"a"] * 10)
    assert run(one, two, "gone") == 10
    one.produce("gone", 0, [b"b"] * 10)
    one.admin.delete_records({TopicPartition("gone", 0): 15})
    worker = Mirror(one, two, name="gone", topics=TopicFilter("gone"))
    assert worker.run(threading.Event(), to_end=True).record_count == 5
    assert worker.copied.notes == ["gone-0: the source no longer has offsets 10 to 14; skipping them"]
    worker.close()
    assert [record.value for record in read(two, "gone")] == [b"a"] * 10 + [b"b"] * 5


@pytest.mark.parametrize("choice", ["rewind", "restart"])
def test_a_recreated_topic_is_left_behind_until_it_may_be_copied(clients: tuple[Client, Client], choice: str) -> None:
    """The others are copied on; the choice is made once."""
    one, two = clients
    name, other = f"recreated-{choice}", f"other-{choice}"
    topics = TopicFilter(f"{name}|{other}")

    def copy(on_data_loss: str = "stop") -> tuple[int, dict[str, str]]:
        worker = Mirror(one, two, name=choice, topics=topics, on_data_loss=on_data_loss)
        count = worker.run(threading.Event(), to_end=True).record_count
        worker.close()
        return count, {topic: row.reason for topic, row in worker.states.rows.items()}

    for topic in (name, other):
        one.admin.create_topic(topic, 1)
        one.produce(topic, 0, [b"old"] * 10)
    assert copy() == (20, {})
    one.admin.delete_topic(name)
    one.admin.create_topic(name, 1)
    one.produce(name, 0, [b"new"] * 14)
    one.produce(other, 0, [b"more"] * 3)
    count, behind = copy()
    assert (count, behind.keys()) == (3, {name})
    assert f"deleted and recreated in the source after {name}-0 was copied up to offset 10" in behind[name]
    assert "--on-data-loss rewind or restart" in behind[name]
    assert len(read(two, name)) == 10
    assert copy(choice) == (14, {})
    assert copy() == (0, {})
    assert [record.value for record in read(two, name)] == [b"old"] * 10 + [b"new"] * 14


def test_a_recreated_topic_that_is_empty_is_claimed(clients: tuple[Client, Client]) -> None:
    """The choice holds although there was nothing to copy when it was made."""
    one, two = clients
    one.admin.create_topic("empty", 1)
    one.produce("empty", 0, [b"old"])
    assert run(one, two, "empty") == 1
    one.admin.delete_topic("empty")
    one.admin.create_topic("empty", 1)
    worker = Mirror(one, two, name="empty", topics=TopicFilter("empty"), on_data_loss="rewind")
    assert worker.run(threading.Event(), to_end=True).record_count == 0
    worker.close()
    one.produce("empty", 0, [b"new"])
    assert run(one, two, "empty") == 1
    assert [record.value for record in read(two, "empty")] == [b"old", b"new"]


def test_a_topic_is_recreated_while_it_is_copied(
    clients: tuple[Client, Client], source: Broker, target: Broker
) -> None:
    """What was fetched of the old one and what is in the new one are not taken for each other."""
    one, two = clients
    stop, notes = threading.Event(), []

    def work() -> None:
        with Client(source.bootstrap_servers) as from_, Client(target.bootstrap_servers) as to:
            worker = Mirror(
                from_,
                to,
                name="anew",
                topics=TopicFilter("anew"),
                refresh_s=0.05,
                commit_interval_s=0.02,
                on_data_loss="rewind",
            )
            notes.extend(worker.run(stop).notes)
            worker.close()

    one.admin.create_topic("anew", 1)
    one.produce("anew", 0, [b"old"] * 10)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: two.partition_counts(["anew"]) and len(read(two, "anew")) == 10, READY_S, "the old topic")
        one.admin.delete_topic("anew")
        one.admin.create_topic("anew", 1)
        one.produce("anew", 0, [b"new"] * 30)
        wait_until(lambda: len(read(two, "anew")) == 40, READY_S, "the new topic")
    finally:
        stop.set()
        thread.join()
    assert [record.value for record in read(two, "anew")] == [b"old"] * 10 + [b"new"] * 30
    assert notes == ["anew-0: the topic was deleted and recreated in the source; copying it from the start"]


def test_a_topic_is_recreated_within_a_response(clients: tuple[Client, Client]) -> None:
    """The response's records of the deleted topic do not count as progress in the new one."""
    one, two = clients
    one.admin.create_topic("halfway", 2)
    for partition in range(2):
        one.produce("halfway", partition, [b"old"] * 10)
    assert run(one, two, "halfway") == 20
    for partition in range(2):
        one.produce("halfway", partition, [b"late"] * 10)
    stop = threading.Event()
    worker = Mirror(
        one,
        two,
        name="halfway",
        topics=TopicFilter("halfway"),
        commit_size=1,
        on_data_loss="rewind",
        on_commit=lambda _: stop.set(),
    )
    plain = worker._some_are_others
    made_anew = []

    def make_anew() -> bool:
        if not made_anew:
            made_anew.append(True)
            one.admin.delete_topic("halfway")
            one.admin.create_topic("halfway", 2)
            for partition in range(2):
                one.produce("halfway", partition, [b"new"] * 30)
        return plain()

    worker._some_are_others = make_anew
    worker.run(stop)
    worker.close()
    run(one, two, "halfway")
    assert made_anew
    for partition in range(2):
        assert [record.value for record in read(two, "halfway", partition)] == [b"old"] * 10 + [b"new"] * 30


def test_a_topic_of_kafka_07_becomes_an_ordinary_one(source: Broker, clients: tuple[Client, Client]) -> None:
    one, two = clients
    source.create_topic("old", 1, message_format="classic")
    assert source.classic_endpoint is not None
    with ClassicClient(source.classic_endpoint.port) as classic:
        classic.send(oracle.produce("old", 0, HELLO_0 * 500))
        classic.fetch("old", 0, 0, 1)
    assert run(one, two, "old") == 500
    assert run(one, two, "old") == 0
    assert [record.value for record in read(two, "old")] == [b"hello"] * 500
    with Producer(two) as producer:
        producer.send("old", 0, [b"new"])


def test_new_topics_are_found_while_running_and_a_second_mirror_fences_the_first(
    clients: tuple[Client, Client], source: Broker, target: Broker
) -> None:
    one, two = clients
    one.admin.create_topic("live-a", 1)
    stop, ended = threading.Event(), []

    def work() -> None:
        with Client(source.bootstrap_servers) as from_, Client(target.bootstrap_servers) as to:
            worker = Mirror(
                from_, to, name="live", topics=TopicFilter("live-.*", "live-no"), refresh_s=0.1, commit_interval_s=0.05
            )
            try:
                worker.run(stop)
            except ProducerFenced as error:
                ended.append(error)
            worker.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        one.produce("live-a", 0, [b"1"] * 10)
        wait_until(
            lambda: two.partition_counts(["live-a"]) and len(read(two, "live-a")) == 10, READY_S, "the first topic"
        )
        one.admin.create_topic("live-b", 2)
        one.admin.create_topic("live-no", 1)
        one.produce("live-b", 1, [b"2"] * 10)
        wait_until(
            lambda: two.partition_counts(["live-b"]) and len(read(two, "live-b", 1)) == 10, READY_S, "a new topic"
        )
        assert "live-no" not in two.topics()
        second = Mirror(one, two, name="live", topics=TopicFilter("live-.*", "live-no"))
        assert second.run(threading.Event(), to_end=True).record_count == 0
        second.close()
        one.produce("live-a", 0, [b"3"] * 10)
        wait_until(lambda: ended, READY_S, "the first mirror's end")
    finally:
        stop.set()
        thread.join()
    assert len(read(two, "live-a")) == 10


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topics", "("], "not a regular expression"),
        (["--exclude", "["], "not a regular expression"),
        (["--name", "a/b"], "'a/b' is not a valid mirror name"),
        (["--name", ""], "'' is not a valid mirror name: it is empty"),
        (["--to", "SOURCE"], "the same cluster"),
        (["--to", "127.0.0.1:1"], "cannot connect"),
        (["--from", "host:99999"], "--from"),
        (["--commit-interval", "0"], "not a positive number of seconds"),
        (["--topics", "no[.]such"], "no topic matches no[.]such: nothing was copied"),
        (["--topics", ".*", "--exclude", ".*"], "no topic matches .* outside .*: nothing was copied"),
    ],
)
def test_what_cannot_begin(
    source: Broker, target: Broker, capsys: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    given = [source.bootstrap_servers if option == "SOURCE" else option for option in options]
    assert mirror(source, target, "usage", "-e", *given) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def fill(client: Client, topic: str, partitions: int, count: int, size: int, batch_size: int) -> None:
    """`count` values in each partition: their number, and bytes up to `size`."""
    client.admin.create_topic(topic, partitions)
    step = 50_000
    none = np.empty(0, np.int64)
    with client.producer(codec=Codec.LZ4, batch_size=batch_size) as producer:
        for first in range(0, count, step):
            numbers = np.arange(first, min(first + step, count), dtype=np.int64)
            rows = np.zeros((len(numbers), size), np.uint8)
            rows[:, :8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
            starts = np.arange(len(numbers), dtype=np.int64) * size
            values = BytesColumn(rows.tobytes(), starts, starts + size)
            for partition in range(partitions):
                producer.send(topic, partition, RecordColumns(none, none, no_items(), values))


def numbers_of(client: Client, topic: str, partition: int) -> np.ndarray:
    """The numbers of the committed values, in order."""
    found = []
    for chunk in client.read(topic, partition, end=client.end_offset(topic, partition), isolation=1):
        values = chunk.columns.values
        data = np.frombuffer(values.data, np.uint8)
        rows = data[values.starts[:, None] + np.arange(8)]
        found.append(np.ascontiguousarray(rows).view(">i8").ravel())
    return np.concatenate(found) if found else np.empty(0, np.int64)


def written(client: Client, topic: str, partitions: int) -> int:
    """Offsets in all partitions, markers included."""
    if not client.partition_counts([topic]):
        return 0
    return sum(client.end_offset(topic, partition) for partition in range(partitions))


def start_mirror(source: str, target: str, topic: str, *options: str) -> subprocess.Popen[bytes]:
    address = ["--from", source, "--to", target, "--name", topic, "--topics", topic, "-e", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalite", "mirror", *address, *options], env=environment, stdout=subprocess.DEVNULL
    )


def kill_and_compare(
    source: str, target: str, topic: str, partitions: int, count: int, kills: int, options: list[str]
) -> None:
    """Kills the mirror `kills` times on its way, lets one end, and compares every partition."""
    dice = random.Random(6)
    total = partitions * count
    marks = sorted(dice.sample(range(total // 20, total * 9 // 10), kills))
    with Client(target, retry_timeout_s=60) as client:
        killed = 0
        for mark in marks:
            wanted = max(mark, written(client, topic, partitions) + 1)
            process = start_mirror(source, target, topic, *options)
            while process.poll() is None and written(client, topic, partitions) < wanted:
                time.sleep(0.001)
            killed += process.poll() is None
            process.kill()
            process.wait()
        assert killed == kills, "a mirror came to its end before it could be killed"
        process = start_mirror(source, target, topic, *options)
        assert process.wait(600) == 0
        for partition in range(partitions):
            found = numbers_of(client, topic, partition)
            assert len(found) == count, f"{len(found)} of {count} in partition {partition}"
            assert np.array_equal(found, np.arange(count)), f"partition {partition} is not the source's"


@pytest.mark.slow
def test_kill_minus_nine_twice(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "source") as source, BrokerProcess(tmp_path / "target") as target:
        with Client(source.bootstrap) as client:
            fill(client, "killed", 4, 50_000, 100, 10_000)
        options = ["--commit-size", "100000", "--commit-interval", "0.05"]
        kill_and_compare(source.bootstrap, target.bootstrap, "killed", 4, 50_000, 2, options)


@pytest.mark.slow
def test_the_target_dies_and_comes_back(tmp_path: Path) -> None:
    """kill -9 of the broker: transactions with an unknown outcome are repeated, none twice."""
    with BrokerProcess(tmp_path / "source") as source, BrokerProcess(tmp_path / "target") as target:
        with Client(source.bootstrap) as client:
            fill(client, "killed", 2, 50_000, 100, 10_000)
        options = ["--commit-size", "50000", "--commit-interval", "0.05"]
        process = start_mirror(source.bootstrap, target.bootstrap, "killed", *options)
        try:
            with Client(target.bootstrap, retry_timeout_s=60) as client:
                for share in (0.2, 0.5):
                    wanted = int(share * 100_000)
                    wait_until(lambda: written(client, "killed", 2) >= wanted, 120, "progress", 0.001)  # noqa: B023
                    target.kill()
                    target.start()
                statuses = [process.wait(300)]
                while statuses[-1] and len(statuses) < 4:  # it may have given up: the next one continues
                    again = start_mirror(source.bootstrap, target.bootstrap, "killed", *options)
                    statuses.append(again.wait(300))
                assert statuses[-1] == 0, statuses
                for partition in range(2):
                    assert np.array_equal(numbers_of(client, "killed", partition), np.arange(50_000))
        finally:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_five_million_messages_and_five_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "source") as source, BrokerProcess(tmp_path / "target") as target:
        with Client(source.bootstrap) as client:
            fill(client, "killed", 5, 1_000_000, 200, 100_000)
        began = time.monotonic()
        kill_and_compare(source.bootstrap, target.bootstrap, "killed", 5, 1_000_000, 5, ["--commit-size", "2000000"])
        print(f"5,000,000 messages with five kills: {time.monotonic() - began:.1f} s")
