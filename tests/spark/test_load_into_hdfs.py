"""`kafkalite load` into HDFS with Spark around: killed and run again, each record is there once; Java reads it too."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.load.manifest import Target
from kafkalite.load.storage import LoadError
from kafkalite.spark import load
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.kit.processes.hdfs import MiniHdfs
from tests.kit.processes.maven import NotAvailable
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(3600)]

COUNT = 6_000
ROUNDS = 3
TIMEOUT_S = 400


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    try:
        with MiniHdfs(tmp_path_factory.mktemp("hdfs")) as running:
            yield running
    except NotAvailable as error:
        pytest.skip(str(error))


def started(broker: Broker, topic: str, place: str, folder: Path) -> subprocess.Popen[str]:
    words = ["-b", broker.bootstrap_servers, "-t", topic, "--to", place, "--master", "local[2]", "-q", "--json"]
    words += ["--conf", "spark.driver.host=127.0.0.1", "--commit-size", "20000", "--file-size", "10000"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(quick_python(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "errors").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "kafkalite", "load", *words],
            cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip


def offsets_in(place: str) -> list[int]:
    """In order. A load that was killed early has left a manifest which says where it begins, and no files."""
    if not load.files(place):
        return []
    return sorted(load.dataset(place).to_table(columns=["offset"]).column(0).to_pylist())


def test_killed_and_run_again(spark, hdfs: MiniHdfs, kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    place = hdfs.url(f"/{kafka_topic}")
    chance = random.Random(time.time_ns())
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.produce(kafka_topic, 0, [b"%d" % n for n in range(COUNT)], batch_size=500)
    for _ in range(ROUNDS):
        before = Target(place).refresh().number
        process = started(kafka_broker, kafka_topic, place, tmp_path)
        try:
            wait_until(
                lambda at=before, running=process: Target(place).refresh().number > at or running.poll() is not None,
                TIMEOUT_S,
                "a change",
            )
            try:
                process.wait(chance.random() * 2)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                assert process.returncode == 0, (tmp_path / "errors").read_text()[-4000:]
        finally:
            process.kill()
            process.communicate()
        hdfs.restart()
        (end,) = load.positions(place).values() or (0,)
        assert offsets_in(place) == list(range(end))
    process = started(kafka_broker, kafka_topic, place, tmp_path)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, (tmp_path / "errors").read_text()[-4000:]
    assert json.loads(out)["lag"] == 0
    with contextlib.suppress(LoadError):  # but where Spark's Hadoop can speak it
        assert load.read(spark, place).count() == COUNT
    loaded = load.read(spark, place, spark_path=hdfs.rpc_url(f"/{kafka_topic}"))
    rows = loaded.selectExpr("offset", "cast(value as string) as value").collect()
    assert sorted((row.offset, int(row.value)) for row in rows) == [(n, n) for n in range(COUNT)]
