"""A query of Spark's own connector with the Java clients' option names: it runs, and the driver's log names the ignored
ones, once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.spark.java_clients import JAVA_FLAGS, JAVA_NAMES, JAVA_NUMBERS
from kafkalite.spark.options import HONOURED, REFUSED
from tests.kit.processes.broker import REPOSITORY
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 400
QUERIES = """
import json, sys
from kafkalite.spark.session import session

servers, topic, folder = sys.argv[1:]
spark = session("options", master="local[2]", settings={"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"})
bootstrap = {"kafka.bootstrap.servers": servers}
read = {**bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
frame = spark.read.format("kafkalite").options(**read, **{"kafka.max.poll.records": "7"}).load()
found = [frame.count()]
rows = frame.select("value", "offset").write.format("kafkalite").mode("append")
rows.options(**bootstrap, topic=f"{topic}-copy", **{"kafka.max.request.size": "1"}).save()
query = (
    spark.readStream.format("kafkalite")
    .options(**read, maxOffsetsPerTrigger="10", **{"kafka.session.timeout.ms": "9"})
    .load()
    .select("value")
    .writeStream.format("kafkalite")
    .options(**bootstrap, topic=f"{topic}-copy", **{"kafka.retries": "3"})
    .option("checkpointLocation", folder)
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(300)
found.append(spark.read.format("kafkalite").options(**bootstrap, subscribe=f"{topic}-copy").load().count())
print(json.dumps(found))
spark.stop()
"""
LINE = 'format("kafkalite"): these options have no effect: '


def test_the_drivers_log_lists_them_once(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(kafka_topic, 0, [b"x"] * 30)
    environment = {**os.environ, "PYSPARK_PYTHON": str(quick_python(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", QUERIES, kafka_broker.bootstrap_servers, kafka_topic, str(tmp_path / "checkpoint")],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == [30, 60]
    lines = [line.partition(LINE)[2] for line in done.stderr.splitlines() if LINE in line]
    assert sorted(lines) == [
        "kafka.max.poll.records",
        "kafka.max.request.size, column offset",
        "kafka.retries",
        "kafka.session.timeout.ms",
    ]


@pytest.mark.compat
@pytest.mark.usefixtures("sparks_connector")
def test_every_name_that_sparks_connector_takes(spark, kafka_broker: Broker, kafka_topic: str) -> None:
    """Only the format changes: both read the same rows, with any name of the Java clients set."""
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(kafka_topic, 0, [b"x"] * 30)
    numbers = {
        "kafka.request.timeout.ms": 60_000, "kafka.session.timeout.ms": 20_000, "kafka.heartbeat.interval.ms": 1_000,
        "kafka.max.poll.interval.ms": 300_000, "kafka.default.api.timeout.ms": 60_000,
        "kafka.connections.max.idle.ms": 60_000, "kafka.fetch.max.bytes": 1_000_000, "kafka.batch.size": 1_000,
        "kafka.metadata.recovery.rebootstrap.trigger.ms": 60_000, "kafka.socket.connection.setup.timeout.ms": 60_000,
        "kafka.socket.connection.setup.timeout.max.ms": 60_000,
    }  # fmt: skip
    names = sorted(name for name in JAVA_NUMBERS | JAVA_FLAGS if name not in REFUSED and ".sasl." not in name)
    values = {name: str(numbers.get(name, 2)) if name in JAVA_NUMBERS else "true" for name in names}
    values |= {
        "kafka.group.id": "g", "kafka.client.rack": "r", "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.group.protocol": "classic", "kafka.acks": "all", "groupIdPrefix": "p", "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "5", "maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "1",
        "maxTriggerDelay": "1s", "minPartitions": "2", "maxRecordsPerPartition": "8", "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": "60000", "topic": "ignored",
    }  # fmt: skip
    assert JAVA_NAMES & set(values) > set(HONOURED) & JAVA_NUMBERS
    found = []
    for name in ("kafka", "kafkalite"):
        options = {**values, "kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": kafka_topic}
        found.append(sorted(map(repr, spark.read.format(name).options(**options).load().collect())))
    assert len(found[0]) == 30
    assert found[0] == found[1]
