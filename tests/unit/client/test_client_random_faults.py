"""Random runs of one producer and one reader against a cluster that fails at random; a seed replays a run.

Invariant: despite any failure, an idempotent producer's records are stored once and in order, and a reader gets exactly
the stored records. Control: the same run with a fault the protocol cannot survive must end in DeliveryFailed, and the
stored records must then be a prefix of those sent.
"""

import random

import pytest

from kafkalite.client import Client, DeliveryFailed
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from tests.kit.fakes.cluster import CLOSE, CLOSE_AFTER, FETCH, METADATA, PRODUCE, FakeCluster
from tests.kit.harness.samples import sample

PASSING = [CLOSE, CLOSE_AFTER, 2, 3, 5, 6, 7, 56]
PARTITIONS = 3
OPTIONS = {"request_timeout_s": 5.0, "retry_timeout_s": 20.0, "retry_backoff_s": 0.001}


def disturb(source: random.Random, cluster: FakeCluster) -> None:
    """One thing that happens in a cluster's life."""
    match source.randrange(6):
        case 0:
            cluster.drop_connections()
        case 1:
            with cluster.lock:
                cluster.topics["t"][source.randrange(PARTITIONS)].leader = source.randrange(2)
        case 2:
            cluster.metadata_lags = source.randrange(3)
        case 3:
            cluster.fail(METADATA, CLOSE)
        case _:
            cluster.fail(PRODUCE, source.choice(PASSING), times=source.randrange(1, 4), skip=source.randrange(4))


def values_of(cluster: FakeCluster, client: Client, partition: int) -> list[bytes | None]:
    return [value for chunk in client.read("t", partition, fetch_size=900) for value in chunk.columns.values]


@pytest.mark.parametrize("seed", sample(range(40), 10))
def test_once_and_in_order(seed: int) -> None:
    source = random.Random(seed)
    sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with FakeCluster(nodes=2) as cluster, Client(cluster.bootstrap, **OPTIONS) as client:
        cluster.create("t", PARTITIONS)
        with client.producer(
            batch_size=source.choice([60, 300, 2000]), in_flight_max=source.randrange(1, 6)
        ) as producer:
            for _ in range(60):
                partition = source.randrange(PARTITIONS)
                values = [b"%d" % (len(sent[partition]) + i) for i in range(source.randrange(1, 60))]
                producer.send("t", partition, values)
                sent[partition] += values
                if source.random() < 0.4:
                    disturb(source, cluster)
                if source.random() < 0.1:
                    producer.flush()
            producer.flush()
            counts = {key.partition: delivery.record_count for key, delivery in producer.deliveries.items()}
        assert counts == {i: len(values) for i, values in enumerate(sent) if values}
        cluster.faults.clear()
        for _ in range(5):
            cluster.fail(FETCH, source.choice(PASSING), skip=source.randrange(5))
        for partition, values in enumerate(sent):
            assert values_of(cluster, client, partition) == values, f"seed {seed}, partition {partition}"


@pytest.mark.parametrize("seed", range(10))
def test_a_lasting_refusal_leaves_a_beginning(seed: int) -> None:
    source = random.Random(seed)
    with FakeCluster(nodes=2) as cluster, Client(cluster.bootstrap, **OPTIONS) as client:
        cluster.create("t", 1)
        cluster.fail(PRODUCE, ErrorCode.INVALID_RECORD, skip=source.randrange(8))
        values = [b"%d" % i for i in range(1000)]
        producer = client.producer(batch_size=400, in_flight_max=source.randrange(1, 6))
        with pytest.raises(DeliveryFailed) as caught:  # noqa: PT012  # which of the calls raises is left open
            for start in range(0, 1000, 100):
                producer.send("t", 0, values[start : start + 100])
            producer.flush()
        delivered = producer.delivery("t", 0).record_count
        producer.close()
        stored = values_of(cluster, client, 0)
        assert stored == values[: len(stored)]
        assert len(stored) >= delivered
        assert caught.value.unacknowledged >= 1
        assert client.end_offset(*TopicPartition("t", 0)) == len(stored)
