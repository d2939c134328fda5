"""A Spark Connect server, from the jars of PySpark, and a program that is its client: a process without sparkContext.

python -m tests.kit.processes.spark_connect REMOTE SERVERS TOPIC FOLDER
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from kafkalite.spark import load
from kafkalite.spark.json_values import decode_json
from kafkalite.spark.session import session
from tests.kit.processes.broker import REPOSITORY, free_port

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_TIMEOUT_S = 240


class ConnectServer:
    """A context manager; its Python workers run `python`."""

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._python = python
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def remote(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self._folder / "connect.log").read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        import socket

        import pyspark

        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONPATH": str(REPOSITORY),
        }
        with (self._folder / "connect.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]", *conf],
                cwd=self._folder, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.2)
        self.__exit__()
        raise AssertionError(self.log())

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def main(remote: str, servers: str, topic: str, folder: str) -> None:
    """Reads, writes, loads and streams; prints what it saw."""
    spark = session("connected", remote=remote)
    options = {"kafka.bootstrap.servers": servers}
    seen: dict[str, object] = {"classic": hasattr(type(spark), "_jvm")}
    frame = spark.read.format("kafkalite").options(**options, subscribe=topic, startingOffsets="earliest").load()
    seen["read"] = sorted(bytes(row.value).decode() for row in frame.collect())
    upper = frame.selectExpr("upper(cast(value as string)) as value")
    upper.write.format("kafkalite").options(**options, topic=f"{topic}-out").mode("append").save()
    loaded = f"{folder}/loaded"
    for _ in range(2):
        summary = load.load(
            spark, loaded, bootstrap_servers=servers, topics=[topic],
            transform=lambda rows: decode_json(rows, "id INT", mode="dlq"), dead_letters=f"{topic}-bad",
        )  # fmt: skip
        seen.setdefault("rows", []).append(summary.rows)
        seen.setdefault("letters", []).append(summary.letters)
    seen["loaded"] = load.read(spark, loaded).count()
    stream = spark.readStream.format("kafkalite").options(
        **options, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2"
    )
    for _ in range(2):
        query = load.stream_to(stream.load(), f"{folder}/streamed", available_now=True)
        query.awaitTermination(300)
    seen["streamed"] = load.read(spark, f"{folder}/streamed").count()
    seen["changes"] = load.positions(f"{folder}/streamed").popitem()[1]
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
