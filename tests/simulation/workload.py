"""Clients for a simulation, and what they were promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite._native.log.log_append import APPEND_ASK, append_batch
from kafkalite._native.log.producers import FROM_CLIENT
from kafkalite.base.deferred import Deferred, completed
from kafkalite.broker.coordinator.offset_requests import Offset
from kafkalite.broker.coordinator.transaction_rules import TV2
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.model import TopicPartition
from tests.kit.harness.log_harness import make_batch, split
from tests.kit.oracles.transaction_model import read_committed
from tests.simulation.world import Lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.broker.log.partition_log import PartitionLog
    from tests.simulation.world import Client, Node, Program

TRANSACTIONAL = 1 << 4
PRODUCE_VERSION = 12
GROUP_VERSION = 5
PAUSE_S = 0.05
OTHER_CODE = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Steps = Generator[Any, Any, Any]


@dataclass
class Promises:
    """What was answered with success, by who may rely on it."""

    records: dict[tuple[str, int], list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """The CRC-covered bytes of each acknowledged batch, with its offset."""
    topics: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    """(group, partition) → offset committed last."""
    asked: dict[tuple[str, int], int] = field(default_factory=dict)
    """The same, but asked for last."""
    committed: set[tuple[int, int]] = field(default_factory=set)
    """(partition, offset) of records whose transaction is committed."""
    aborted: set[tuple[int, int]] = field(default_factory=set)
    noted: list[str] = field(default_factory=list)
    """Faults that a client itself found."""
    answers: int = 0


def produce(node: Node, topic: str, partition: int, batch: bytes, admitted: int = -1) -> Deferred[tuple[int, int]]:
    """(error code, offset) of Produce with acks=all. Codes of `append_batch` that a client never sees among them."""
    try:
        log = node.log(topic, partition)
    except KeyError:
        return completed((OTHER_CODE, -1))
    outcome, error, offset, _, _, end_offset, _ = append_batch(log.core, batch, origin=FROM_CLIENT, admitted=admitted)
    if error or outcome == APPEND_ASK:
        return completed((error or int(ErrorCode.INVALID_TXN_STATE), -1))
    answer: Deferred[tuple[int, int]] = Deferred()
    log.flush_async(end_offset, lambda code: answer.complete((code, offset)))
    return answer


def patiently(node: Node) -> Steps:
    """Until the broker is there and has loaded its groups and transactions."""
    while not (node.up and node.groups.shards.wait_loaded(0) and node.transactions.shards.wait_loaded(0)):
        yield PAUSE_S


def producer(node: Node, promises: Promises, name: str, topic: str, count: int) -> Program:
    """Sends `count` records to two partitions of a topic that it makes, each until it is acknowledged."""

    def program(client: Client) -> Steps:
        yield from creation(node, promises, topic)
        for number in range(count):
            value = f"{name} {number} ".encode() * client.draw.randint(1, 20)
            partition = client.draw.randrange(2)
            batch = make_batch(value=value, key=f"k{client.draw.randrange(8)}".encode())
            while True:
                yield from patiently(node)
                try:
                    code, offset = yield produce(node, topic, partition, batch)
                except Lost:
                    continue
                if code == 0:
                    promises.records[topic, partition].append((offset, covered(batch)))
                    promises.answers += 1
                    break
                if code == OTHER_CODE:
                    promises.noted.append(f"{topic}-{partition} is missing")
                    return
                yield PAUSE_S
            yield client.draw.random() * 0.2

    return program


def creation(node: Node, promises: Promises, topic: str, **settings: str) -> Steps:
    """A topic of two partitions, asked for until it is there."""
    while topic not in promises.topics:
        yield from patiently(node)
        try:
            answer = yield node.pool(lambda: node.logs.create_topic(topic, 2, settings))
        except Lost:
            continue
        if not isinstance(answer, Exception) or (
            isinstance(answer, KafkaError) and answer.code == ErrorCode.TOPIC_ALREADY_EXISTS
        ):
            promises.topics.add(topic)
            promises.answers += 1
        yield PAUSE_S


def topic_changer(node: Node, promises: Promises, count: int) -> Program:
    """Makes topics and deletes them again."""

    def program(client: Client) -> Steps:
        for number in range(count):
            topic = f"passing{number}"
            yield from creation(node, promises, topic)
            yield client.draw.random()
            promises.topics.discard(topic)  # its deletion is requested: it is no longer promised
            while topic not in promises.gone:
                yield from patiently(node)
                try:
                    answer = yield node.pool(lambda name=topic: node.logs.delete_topic(name))
                except Lost:
                    continue
                unknown = isinstance(answer, KafkaError) and answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if unknown or not isinstance(answer, Exception):
                    promises.gone.add(topic)
                    promises.answers += 1
                yield PAUSE_S

    return program


def committer(node: Node, promises: Promises, group: str, topic: str, count: int) -> Program:
    """Commits rising offsets of two partitions."""

    def program(client: Client) -> Steps:
        yield from creation(node, promises, topic)
        for offset in range(1, count + 1):
            partition = client.draw.randrange(2)
            asked = Offset(TopicPartition(topic, partition), offset, -1, "")
            yield from patiently(node)
            promises.asked[group, partition] = offset
            try:
                (code,) = yield node.groups.offsets.commit(group, "", None, -1, [asked])
            except Lost:
                continue
            if not code:
                promises.commits[group, partition] = offset
                promises.answers += 1
            yield client.draw.random() * 0.1

    return program


def transactional(node: Node, promises: Promises, name: str, topic: str, count: int) -> Program:
    """Write transactions of a few records, two of three committed; one with an unknown end counts as neither."""

    def program(client: Client) -> Steps:
        yield from creation(node, promises, topic)
        done = 0
        while done < count:
            try:
                done += yield from life(client, count - done)
            except Lost:
                continue
            except KeyError as missing:
                promises.noted.append(f"{topic}: {missing} is missing")
                return
            yield PAUSE_S

    def life(client: Client, left: int) -> Steps:
        """One producer, until something goes wrong; how many transactions it has ended."""
        yield from patiently(node)
        code, producer_id, epoch = yield node.transactions.initialise(name, 60_000, None)
        if code:
            return 0
        sequences = [0, 0]
        for number in range(left):
            written = []
            for _ in range(client.draw.randint(1, 3)):
                partition = client.draw.randrange(2)
                code, offset = yield from write(producer_id, epoch, partition, sequences)
                if code:
                    return number
                written.append((partition, offset))
            commit = client.draw.random() < 2 / 3
            answer = yield node.transactions.end(name, producer_id, epoch, commit=commit, version=TV2)
            if answer.code:
                return number
            (promises.committed if commit else promises.aborted).update(written)
            promises.answers += 1
            if (producer_id, epoch) != (answer.producer_id, answer.epoch):
                sequences = [0, 0]
            producer_id, epoch = answer.producer_id, answer.epoch
        return left

    def write(producer_id: int, epoch: int, partition: int, sequences: list[int]) -> Steps:
        batch = make_batch(
            value=f"{name} {producer_id} {epoch}".encode(),
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequences[partition],
            attributes=TRANSACTIONAL,
        )
        sequences[partition] += 1
        yield from patiently(node)
        token = node.log(topic, partition).core.marker_count()
        admitted = node.transactions.admit(name, producer_id, epoch, topic, partition, PRODUCE_VERSION)
        code = (yield admitted) if isinstance(admitted, Deferred) else admitted
        if code:
            return code, -1
        return (yield produce(node, topic, partition, batch, token))

    return program


# ---- what must hold -------------------------------------------------------------------------------------------------


def covered(batch: bytes) -> bytes:
    """Return the part of a batch that the broker never changes."""
    ((_, _, data),) = split(batch)
    return data


def broken(node: Node, promises: Promises) -> Iterator[str]:
    """Every promise that does not hold. The broker is up, and has nothing left to do."""
    yield from promises.noted
    present = {name for name, topic in node.logs.topics.items() if len(topic.partitions) == 2 or name.startswith("__")}
    yield from (f"topic {name} is missing" for name in sorted(promises.topics - present))
    yield from (f"topic {name} is there again" for name in sorted(promises.gone & present))
    for (topic, partition), records in sorted(promises.records.items()):
        if topic in present:
            log = node.log(topic, partition)
            held = held_records(log)
            yield from (
                f"{log.name}: the record at {offset} is missing" for offset, data in records if held.get(offset) != data
            )
    for (group, partition), offset in sorted(promises.commits.items()):
        (found,) = node.groups.offsets.fetch(group, "t", [partition])
        at = -1 if found is None else found.offset
        if not offset <= at <= promises.asked[group, partition]:
            yield f"group {group}: offset {offset} of partition {partition} was committed, and is {at}"
    if "x" in present:
        yield from broken_transactions(node, promises)


def broken_transactions(node: Node, promises: Promises) -> Iterator[str]:
    for partition in range(2):
        log = node.log("x", partition)
        seen = set(read_committed(log, log.log_start_offset))
        yield from (
            f"{log.name}: {offset} was committed, and is not seen"
            for number, offset in sorted(promises.committed)
            if number == partition and offset not in seen
        )
        yield from (
            f"{log.name}: {offset} was aborted, and is seen"
            for number, offset in sorted(promises.aborted)
            if number == partition and offset in seen
        )


def held_records(log: PartitionLog) -> dict[int, bytes]:
    """Offset → what the CRC covers, of all batches of a log."""
    held = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 1 << 20)
        for first, behind, body in split(data):
            held[first] = body
            at = behind
    return held
