"""A broker that sends malformed responses: the client raises one of its own errors or returns; it never fails
internally.

Bytes of responses are changed at random after the correlation id, with a fixed seed. Not covered: lengths of frames
(test_client_failures) and records inside batches (tests/unit/wire/record).
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.client import Client, ClientError, GroupMetadata, ProtocolError
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_EARLIEST, TopicPartition
from tests.kit.fakes.cluster import HANDLERS, FakeCluster
from tests.kit.harness.samples import sample

KEYS = [TopicPartition("t", partition) for partition in range(2)]
ROUNDS = {"group": 40}
"""Of calls that take longer than others."""
HEAD_SIZE = 8  # length and correlation id


def read(client: Client) -> None:
    with client.reader(dict.fromkeys(KEYS, 0), max_wait_ms=1) as reader:
        for _ in range(3):
            reader.poll()


def read_in_group(client: Client) -> None:
    with client.group_reader("g", "t", reset="earliest", heartbeat_interval_s=0.01, max_wait_ms=1) as reader:
        for _ in range(4):
            reader.poll(0.02)
            reader.commit(timeout_s=0.02)


def write_in_transaction(client: Client) -> None:
    with client.producer(transactional_id="id", delivery_timeout_s=0.01) as producer, producer.transaction():
        producer.send("t", 0, [b"value"])
        producer.send_offsets_to_transaction({KEYS[0]: 1}, GroupMetadata("g"))


CALLS: dict[str, Callable[[Client], object]] = {
    "topics": lambda client: client.topics(),
    "offsets": lambda client: client.list_offsets(dict.fromkeys(KEYS, OFFSET_EARLIEST)),
    "read": read,
    "produce": lambda client: client.produce("t", 0, [b"value"], delivery_timeout_s=0.01),
    "create": lambda client: client.admin.create_topic("t"),
    "group": read_in_group,
    "transaction": write_in_transaction,
}


def mutator(source: random.Random, chance: float) -> Callable[[bytes], bytes]:
    """Changes a byte or two, or cuts the end off (the length told stays what came)."""

    def mutate(frame: bytes) -> bytes:
        if source.random() > chance or len(frame) <= HEAD_SIZE:
            return frame
        changed = bytearray(frame)
        for _ in range(source.randrange(1, 3)):
            changed[source.randrange(HEAD_SIZE, len(changed))] = source.choice(
                [0, 1, 2, 127, 128, 255, source.randrange(256)]
            )
        if source.random() < 0.2:
            del changed[source.randrange(HEAD_SIZE, len(changed)) :]
            changed[:4] = (len(changed) - 4).to_bytes(4, "big")
        return bytes(changed)

    return mutate


@pytest.mark.parametrize(
    ("api", "call", "said"),
    [
        (FakeCluster.produce, "produce", "has 0 partitions; expected 1"),
        (FakeCluster.list_offsets, "offsets", "the broker's ListOffsets response lacks t-0, t-1"),
    ],
)
def test_answers_that_leave_out_what_was_asked(
    monkeypatch: pytest.MonkeyPatch, api: Callable[..., object], call: str, said: str
) -> None:
    def empty(cluster: FakeCluster, node: int, request: Any, code: int) -> object:
        answer: Any = api(cluster, node, request, code)
        getattr(answer, "responses" if call == "produce" else "topics").clear()
        return answer

    key = next(key for key, handler in HANDLERS.items() if handler is api)
    monkeypatch.setitem(HANDLERS, key, empty)
    with FakeCluster() as cluster:
        cluster.create("t", 2)
        with Client(cluster.bootstrap) as client, pytest.raises(ProtocolError, match=said):
            CALLS[call](client)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("seed", sample(range(3), 1))
def test_lies_are_our_errors(name: str, seed: int) -> None:
    failures = 0
    with FakeCluster() as cluster:
        cluster.create("t", 2)
        with Client(cluster.bootstrap, retry_timeout_s=2) as client:
            for key in KEYS:
                client.produce("t", key.partition, [b"some value"] * 20)
        # `times` of the same lie would be retried for long: no retries, a second to answer.
        cluster.mutate = mutator(random.Random(seed), 0.5)
        for _ in range(ROUNDS.get(name, 100)):
            with Client(cluster.bootstrap, request_timeout_s=1, connect_timeout_s=1, retry_timeout_s=0) as client:
                try:
                    CALLS[name](client)
                except (ClientError, KafkaError):
                    failures += 1
        cluster.mutate = None
        with Client(cluster.bootstrap, retry_timeout_s=2) as client:
            assert list(client.topics()) == ["t"]
    assert failures > 10, "the lies were too small"
