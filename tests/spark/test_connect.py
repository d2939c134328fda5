"""Source, sink, load, stream and `kafkalite load --remote` at a Spark Connect server: a client has no sparkContext."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.spark import load
from tests.integration.test_load_letters import letters_of
from tests.kit.processes.broker import REPOSITORY, free_port
from tests.kit.processes.spark_connect import ConnectServer
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]

TIMEOUT_S = 600
VALUES = [b'{"id": 1}', b"bad", b'{"id": 2}', b'{"id": 3}', b'{"id": 4}']


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio (the extra connect)")
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(folder, quick_python(folder)) as running:
        yield running


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_a_client_reads_writes_loads_and_streams(
    server: ConnectServer, kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.produce(kafka_topic, 0, VALUES)
        client.admin.create_topic(f"{kafka_topic}-out")
        words = [server.remote, kafka_broker.bootstrap_servers, kafka_topic, str(tmp_path)]
        done = ran("tests.kit.processes.spark_connect", *words)
        assert done.returncode == 0, done.stderr[-4000:] + server.log()
        assert json.loads(done.stdout.splitlines()[-1]) == {
            "classic": False,
            "read": sorted(value.decode() for value in VALUES),
            "rows": [4, 0],
            "letters": [1, 0],
            "loaded": 4,
            "streamed": 5,
            "changes": 5,
        }
        assert sorted(m.value for m in letters_of(client, f"{kafka_topic}-out")) == sorted(v.upper() for v in VALUES)
        assert [message.value for message in letters_of(client, f"{kafka_topic}-bad")] == [b"bad"]
        commits = tmp_path / "streamed" / "_checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (f"{newest}", f".{newest}.crc"):  # as if it had ended before the checkpoint knew
            (commits / name).unlink(missing_ok=True)
        done = ran("tests.kit.processes.spark_connect", *words[:3], str(tmp_path))
        assert done.returncode == 0, done.stderr[-4000:] + server.log()
        assert json.loads(done.stdout.splitlines()[-1])["streamed"] == 5, "a batch that is done again is loaded once"
        shutil.rmtree(tmp_path / "streamed" / "_checkpoint")
        done = ran("tests.kit.processes.spark_connect", *words[:3], str(tmp_path))
        assert load.dataset(tmp_path / "streamed").count_rows() == 5, "nor with a checkpoint that was lost"


def test_the_command(server: ConnectServer, kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.produce(kafka_topic, 0, VALUES)
    where = ["-b", kafka_broker.bootstrap_servers, "--to", str(tmp_path / "loaded"), "-t", kafka_topic, "-q"]
    done = ran("kafkalite", "load", *where, "--remote", server.remote, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["records"] == 5
    assert load.dataset(tmp_path / "loaded").count_rows() == 5


def test_a_bad_record_is_one_sentence(
    server: ConnectServer, kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        client.produce(kafka_topic, 0, VALUES)
    where = ["-b", kafka_broker.bootstrap_servers, "--to", str(tmp_path / "loaded"), "-t", kafka_topic, "-q"]
    done = ran("kafkalite", "load", *where, "--remote", server.remote, "--json-schema", "id INT")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr[-4000:]
    assert (
        done.stderr
        == f"kafkalite: offset 1 of {kafka_topic}-0 cannot be decoded: the value is not JSON of the schema id INT\n"
    )


def test_a_server_that_is_not_there(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    where = ["-b", kafka_broker.bootstrap_servers, "--to", str(tmp_path), "-t", kafka_topic, "-q"]
    remote = f"sc://127.0.0.1:{free_port()}"
    done = ran("kafkalite", "load", *where, "--remote", remote)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr[-4000:]
    assert f"no Spark Connect server listens at {remote}" in done.stderr
