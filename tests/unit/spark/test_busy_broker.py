"""A broker that is too busy to answer the first connection of a Python worker: plans, reads and writes wait for it."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafkalite.spark.options import SourceOptions
from kafkalite.spark.sink.options import SinkOptions
from kafkalite.spark.sink.writing import WriteTask, forget, write_all
from kafkalite.spark.source import plan
from kafkalite.spark.source.reading import read_task
from tests.kit.fakes.cluster import API_VERSIONS, SILENCE, FakeCluster

QUICK = {"kafka.socket.connection.setup.timeout.ms": "200", "kafka.retry.backoff.ms": "5"}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create("t", 1)
        yield cluster


def test_plans_and_tasks_wait(cluster: FakeCluster) -> None:
    named = {"kafka.bootstrap.servers": cluster.bootstrap, **QUICK}
    sink = SinkOptions.parse({**named, "topic": "t"}, {"value": "binary"}, streaming=False)
    cluster.fail(API_VERSIONS, SILENCE)
    assert write_all(sink, WriteTask(0), iter([pa.record_batch({"value": [b"a", b"b"]})])) == 2
    forget(sink)
    source = SourceOptions.parse({**named, "subscribe": "t"})
    cluster.fail(API_VERSIONS, SILENCE)
    with plan.client_of(source.client) as client:
        (task,) = plan.plan_tasks(client, source)
    cluster.fail(API_VERSIONS, SILENCE)
    rows = [value for batch in read_task(source, ["value"], task) for value in batch.column(0).to_pylist()]
    assert rows == [b"a", b"b"]
    plan.client_for(source.client).close()
