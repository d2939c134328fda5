"""Transactional producers of kafkalite.client, on kafkalite and on Apache Kafka: the same expectations of both."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.client import READ_COMMITTED, Client, DeliveryFailed, Producer, TransactionAborted
from kafkalite.client.committed import GroupMetadata
from kafkalite.client.write.transactions import TransactionState
from kafkalite.errors import (
    InvalidTransactionTimeout,
    InvalidTxnState,
    MessageTooLarge,
    ProducerFenced,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from kafkalite.model import TopicPartition
from tests.kit.processes.broker import BrokerProcess, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


@pytest.fixture(
    scope="module",
    params=["kafkalite", pytest.param("apache-kafka", marks=[pytest.mark.slow, pytest.mark.compat])],
)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafkalite":
        with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=4) as broker:
            yield broker.bootstrap_servers
        return
    yield request.getfixturevalue("apache_kafka").bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    client.admin.create_topic(name, 2)
    return name


@pytest.fixture
def producer(client: Client, topic: str) -> Iterator[Callable[..., Producer]]:
    """`producer(**options)`: a transactional producer of the topic's name."""
    made: list[Producer] = []

    def make(**options: Any) -> Producer:
        found = client.producer(transactional_id=topic, **options)
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()


def read(client: Client, topic: str, *, committed: bool = True) -> list[bytes | None]:
    return [
        value
        for partition in (0, 1)
        for chunk in client.read(topic, partition, isolation=READ_COMMITTED if committed else 0)
        for value in chunk.columns.values
    ]


def test_committed_is_seen_and_aborted_is_not(client: Client, topic: str, producer: Callable[..., Producer]) -> None:
    with producer() as writer:
        for number in range(6):
            writer.begin_transaction()
            for partition in (0, 1):
                writer.send(topic, partition, [b"%d" % number] * 10)
            writer.flush()
            if number % 2:
                writer.abort_transaction()
            else:
                writer.commit_transaction()
    assert read(client, topic) == [b"%d" % number for _ in (0, 1) for number in (0, 2, 4) for _ in range(10)]
    assert len(read(client, topic, committed=False)) == 120


def test_nothing_is_seen_before_the_commit(client: Client, topic: str, producer: Callable[..., Producer]) -> None:
    writer = producer()
    with writer.transaction():
        writer.send(topic, 0, [b"x"])
        writer.flush()
        assert client.end_offset(topic, 0, isolation=READ_COMMITTED) == 0
        assert client.end_offset(topic, 0) == 1
        assert read(client, topic) == []
    assert wait_until(lambda: read(client, topic), TIMEOUT_S, "the record") == [b"x"]
    assert client.end_offset(topic, 0, isolation=READ_COMMITTED) == 2


def test_an_exception_aborts(client: Client, topic: str, producer: Callable[..., Producer]) -> None:
    writer = producer()
    with contextlib.suppress(ZeroDivisionError), writer.transaction():
        writer.send(topic, 0, [b"lost"])
        assert 1 // 0
    with writer.transaction():
        writer.send(topic, 0, [b"kept"])
    with writer.transaction():
        pass  # nothing to commit
    with contextlib.suppress(ZeroDivisionError), writer.transaction():
        assert 1 // 0
    assert wait_until(lambda: read(client, topic), TIMEOUT_S, "the record") == [b"kept"]


def test_the_earlier_producer_is_fenced(client: Client, topic: str, producer: Callable[..., Producer]) -> None:
    elder = producer()
    elder.begin_transaction()
    elder.send(topic, 0, [b"elder"])
    elder.flush()
    younger = producer()
    with younger.transaction():
        younger.send(topic, 0, [b"younger"])
    with pytest.raises(ProducerFenced, match=topic):
        elder.commit_transaction()
    for call in (elder.begin_transaction, elder.commit_transaction, elder.abort_transaction):
        with pytest.raises(ProducerFenced):
            call()
    again = producer()
    again.begin_transaction()
    with pytest.raises(ProducerFenced), younger.transaction():  # noqa: PT012
        younger.send(topic, 0, [b"late"])
        younger.flush()
    again.send(topic, 0, [b"again"])
    again.commit_transaction()
    assert wait_until(lambda: len(read(client, topic)) == 2, TIMEOUT_S, "two records")
    assert read(client, topic) == [b"younger", b"again"]


def test_what_cannot_be_delivered_spoils_the_transaction_only(client, topic, producer) -> None:
    """And the sequences of the next one are right, in both protocols."""
    client.admin.alter_topic_configs(topic, {"max.message.bytes": "10000"})
    writer = producer()
    with writer.transaction():
        writer.send(topic, 0, [b"first"])
    with pytest.raises(TransactionAborted) as caught, writer.transaction():  # noqa: PT012
        writer.send(topic, 0, [b"small"])
        writer.send(topic, 0, [bytes(20_000)])
        writer.send(topic, 0, [b"behind"])
    assert isinstance(caught.value.__cause__, DeliveryFailed)
    assert isinstance(caught.value.__cause__.__cause__, MessageTooLarge)
    for _ in range(3):
        with writer.transaction():
            writer.send(topic, 0, [b"next"])
            writer.send(topic, 1, [b"next"])
    assert wait_until(lambda: len(read(client, topic)) == 7, TIMEOUT_S, "seven records")
    assert read(client, topic) == [b"first", b"next", b"next", b"next", b"next", b"next", b"next"]


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(client, topic, producer) -> None:
    writer = producer(transaction_timeout_s=1.0)
    writer.begin_transaction()
    writer.send(topic, 0, [b"late"])
    writer.flush()
    wait_until(lambda: client.end_offset(topic, 0, isolation=READ_COMMITTED) == 2, TIMEOUT_S, "the marker of the abort")
    with pytest.raises((ProducerFenced, TransactionAborted, InvalidTxnState)):
        writer.commit_transaction()
    assert read(client, topic) == []


def test_misuse_is_said(client: Client, topic: str, producer: Callable[..., Producer]) -> None:
    writer = producer()
    with pytest.raises(RuntimeError, match="new, not open"):
        writer.send(topic, 0, [b"x"])
    writer.begin_transaction()
    with pytest.raises(RuntimeError, match="open, not ready"):
        writer.begin_transaction()
    with pytest.raises(UnknownTopicOrPartition):
        writer.send("no-such-topic", 0, [b"x"])
    writer.commit_transaction()
    with pytest.raises(RuntimeError, match="no transactional_id"):
        client.producer().begin_transaction()
    with pytest.raises(InvalidTransactionTimeout):
        producer(transaction_timeout_s=10_000.0).begin_transaction()
    for options in ({"acks": 1}, {"idempotent": False}):
        with pytest.raises(ValueError, match="transactional producer"):
            producer(**options)


def test_leaving_the_block_of_a_producer_aborts_what_is_open(client, topic, producer) -> None:
    with producer() as writer:
        writer.begin_transaction()
        writer.send(topic, 0, [b"x"])
        writer.flush()
    wait_until(lambda: client.end_offset(topic, 0, isolation=READ_COMMITTED) == 2, TIMEOUT_S, "the marker")
    assert read(client, topic) == []


def copy(client: Client, source: str, target: str, *, until: int, fail_at: int = -1) -> None:
    """Consume, transform, produce: a transaction a chunk."""
    with (
        client.group_reader(f"copy-{source}", source, reset="earliest", isolation=READ_COMMITTED) as reader,
        client.producer(transactional_id=f"copy-{source}") as writer,
    ):
        count = 0
        for chunk in reader:
            with writer.transaction():
                writer.send(target, chunk.partition.partition, chunk.columns)
                writer.send_offsets_to_transaction(reader.positions, reader.group_metadata)
                count += len(chunk.columns)
                if 0 <= fail_at <= count:
                    raise ArithmeticError
            if count >= until:
                return


def test_offsets_are_committed_with_the_records_or_not_at_all(client: Client, topic: str) -> None:
    source = f"source-{topic}"
    client.admin.create_topic(source, 2)
    for partition in (0, 1):
        client.produce(source, partition, [b"%d-%d" % (partition, i) for i in range(50)])
    with contextlib.suppress(ArithmeticError):
        copy(client, source, topic, until=100, fail_at=1)
    assert client.groups.committed(f"copy-{source}") == {}
    copy(client, source, topic, until=100)
    expected = [b"%d-%d" % (partition, i) for partition in (0, 1) for i in range(50)]
    assert wait_until(lambda: read(client, topic) == expected, TIMEOUT_S, "the copy")
    offsets = {key: row.offset for key, row in client.groups.committed(f"copy-{source}").items()}
    assert offsets == {TopicPartition(source, 0): 50, TopicPartition(source, 1): 50}


def test_offsets_of_a_member_that_was_replaced_are_refused(client: Client, topic: str) -> None:
    """KIP-447: a zombie's transaction is aborted even if no other producer uses its transactional id."""
    client.produce(topic, 0, [b"x"])
    with (
        Client(client_id="other", bootstrap_servers=_address(client)) as other,
        client.producer(transactional_id=f"zombie-{topic}") as writer,
    ):
        slow = client.group_reader(f"g-{topic}", topic, reset="earliest", max_poll_interval_s=1.0)
        wait_until(lambda: slow.poll(0.1), TIMEOUT_S, "the record")
        before = slow.group_metadata
        with other.group_reader(f"g-{topic}", topic, reset="earliest") as taker:
            wait_until(lambda: taker.poll(0.1), TIMEOUT_S, "the record, again")
            with pytest.raises(TransactionAborted), writer.transaction():  # noqa: PT012
                writer.send(topic, 1, [b"derived"])
                writer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, before)
        slow.close()
    assert client.groups.committed(f"g-{topic}") == {}


def _address(client: Client) -> str:
    (broker,) = client.brokers()
    return f"{broker.host}:{broker.port}"


@pytest.mark.slow
def test_a_commit_during_which_the_broker_is_killed(tmp_path: Path) -> None:
    """An acknowledged commit holds; any other is completed or aborted; the producer continues."""
    with BrokerProcess(tmp_path) as process, Client(process.bootstrap) as client:
        client.admin.create_topic("t", 2)
        with client.producer(transactional_id="p") as writer:
            done = 0
            for number in range(12):
                with contextlib.suppress(TransactionAborted), writer.transaction():
                    writer.send("t", number % 2, [b"%d" % number])
                    if number % 4 == 1:
                        writer.flush()
                        process.kill()
                        process.start()
                    done += 1
                assert writer._manager.state == TransactionState.READY
        seen = wait_until(lambda: read(client, "t"), TIMEOUT_S, "records")
        assert len(seen) == len(set(seen)) == done


def test_batches_close_behind_the_first_one_of_a_transaction_keep_their_order(client: Client) -> None:
    """A fresh log makes the broker's pool ask for the first, with those behind it on the pool already."""
    for _ in range(12):
        name = f"t-{uuid.uuid4().hex[:8]}"
        client.admin.create_topic(name, 2)
        with contextlib.closing(client.producer(transactional_id=name)) as producer:
            producer.begin_transaction()
            for number in range(4):
                producer.send(name, 0, [b"%d" % number])
            producer.commit_transaction()
        assert read(client, name, committed=False) == [b"0", b"1", b"2", b"3"]


def test_a_prepared_transaction_is_ended_elsewhere(client: Client, topic: str, bootstrap: str) -> None:
    for number, ends in enumerate(("commit", "abort", "commit")):
        with contextlib.closing(client.producer(transactional_id=topic)) as producer:
            producer.begin_transaction()
            producer.send(topic, 0, [b"%d" % number] * 10)
            prepared = producer.prepare_transaction()
        with Client(bootstrap) as other, contextlib.closing(other.producer(transactional_id=topic)) as producer:
            producer.resume_transaction(prepared)
            producer.send(topic, 1, [b"%d" % number])
            getattr(producer, f"{ends}_transaction")()
    end = client.end_offset(topic, 0)
    found = [value for chunk in client.read(topic, 0, end=end, isolation=1) for value in chunk.columns.values]
    assert found == [b"0"] * 10 + [b"2"] * 10
    end = client.end_offset(topic, 1)
    found = [value for chunk in client.read(topic, 1, end=end, isolation=1) for value in chunk.columns.values]
    assert found == [b"0", b"2"]


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_prepared_transaction_is_over_when_a_newer_producer_is_there(client: Client, topic: str, ends: str) -> None:
    with contextlib.closing(client.producer(transactional_id=topic)) as producer:
        producer.begin_transaction()
        producer.send(topic, 0, [b"old"])
        prepared = producer.prepare_transaction()
    with contextlib.closing(client.producer(transactional_id=topic)) as newer:
        newer.begin_transaction()
        newer.send(topic, 0, [b"new"])
        with contextlib.closing(client.producer(transactional_id=topic)) as producer:
            producer.resume_transaction(prepared)
            with pytest.raises(ProducerFenced):
                getattr(producer, f"{ends}_transaction")()
        newer.commit_transaction()
    end = client.end_offset(topic, 0)
    found = [value for chunk in client.read(topic, 0, end=end, isolation=1) for value in chunk.columns.values]
    assert found == [b"new"]


# --- offsets that an open transaction may change ----------------------------------------------------------------------


def test_offsets_of_an_open_transaction_are_stable_when_it_has_ended(
    client: Client, topic: str, bootstrap: str, producer: Callable[..., Producer]
) -> None:
    key, group = TopicPartition(topic, 0), f"g-{topic}"
    client.groups.commit(group, {key: 1})
    writing = producer()
    writing.begin_transaction()
    writing.send(topic, 0, [b"a", b"b", b"c"])
    writing.send_offsets_to_transaction({key: 3}, GroupMetadata(group))
    with Client(bootstrap, retry_timeout_s=0.5) as hasty:
        assert hasty.groups.committed(group)[key].offset == 1, "who does not ask for stable ones gets the old one"
        with pytest.raises(UnstableOffsetCommit):
            hasty.groups.committed(group, require_stable=True)
    committing = threading.Timer(0.3, writing.commit_transaction)
    committing.start()
    try:
        with Client(bootstrap) as patient:
            assert patient.groups.committed(group, require_stable=True)[key].offset == 3, "repeated until it is stable"
    finally:
        committing.join()


@pytest.mark.parametrize(("ends", "seen"), [("commit", [b"c"]), ("abort", [b"a", b"b", b"c"])])
def test_a_member_begins_where_an_open_transaction_will_have_ended(
    client: Client, topic: str, bootstrap: str, producer: Callable[..., Producer], ends: str, seen: list[bytes]
) -> None:
    """It would do again what the transaction has done, if it began at the offset that is committed now."""
    key, group = TopicPartition(topic, 0), f"g-{topic}"
    client.produce(topic, 0, [b"a", b"b", b"c"])
    writing = producer()
    writing.begin_transaction()
    writing.send(topic, 1, [b"what a and b became"])
    writing.flush()
    writing.send_offsets_to_transaction({key: 2}, GroupMetadata(group))
    found: list[bytes | None] = []
    with (
        Client(bootstrap) as other,
        other.group_reader(group, topic, reset="earliest", isolation=READ_COMMITTED) as reader,
    ):
        wait_until(lambda: bool(reader.poll(0.2) or key in reader.assignment), TIMEOUT_S, "the partition")
        for _ in range(3):
            assert reader.poll(0.2) == [], "nothing is handed out while nobody knows from where"
        writing.commit_transaction() if ends == "commit" else writing.abort_transaction()

        def all_there() -> bool:
            chunks = [chunk for chunk in reader.poll(0.2) if chunk.partition == key]
            found.extend(value for chunk in chunks for value in chunk.columns.values)
            return len(found) >= len(seen)

        wait_until(all_there, TIMEOUT_S, "what is left")
    assert found == seen
