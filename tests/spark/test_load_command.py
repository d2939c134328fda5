"""`kafkalite load` as an operator runs it, and `python -m kafkalite.spark.load`: a summary; until a signal comes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.avro import AvroEncoder, RegistryClient
from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.spark import load
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 400
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'


@pytest.fixture
def client(kafka_broker: Broker) -> Iterator[Client]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        yield client


def started(module: str, broker: Broker, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", *module.split(), "-b", broker.bootstrap_servers, "--to", str(folder / "loaded")]
    words += ["--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1", *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": str(quick_python(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "errors").open("w") as errors:
        return subprocess.Popen(
            words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )


def ended(process: subprocess.Popen[str], folder: Path) -> str:
    try:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, (folder / "errors").read_text()[-4000:]
    return out


def test_once_with_avro_and_a_summary(kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    topic = f"schemas-{kafka_topic}"[:249]
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        with RegistryClient(registry.url) as schemas:
            encoder = AvroEncoder(schemas, f"{kafka_topic}-value", SCHEMA)
            import pyarrow as pa

            values = encoder.encode(pa.RecordBatch.from_pylist([{"id": n} for n in range(100)])).to_pylist()
        client.produce(kafka_topic, 0, [*values, b"garbage"])
        arguments = ["--topics", kafka_topic, "--avro", registry.url, "--avro-mode", "permissive", "--json"]
        told = json.loads(ended(started("kafkalite.spark.load", kafka_broker, tmp_path, *arguments), tmp_path))
    assert {name: told[name] for name in ("topics", "records", "files", "commits", "lag", "losses")} == {
        "topics": [kafka_topic],
        "records": 101,
        "files": 1,
        "commits": 1,
        "lag": 0,
        "losses": [],
    }
    rows = load.dataset(tmp_path / "loaded").to_table(columns=["offset", "decoded", "value", "avro_error"]).to_pylist()
    assert [(row["offset"], row["decoded"], row["value"]) for row in rows[:100]] == [
        (n, {"id": n}, None) for n in range(100)
    ]
    assert (rows[100]["decoded"], rows[100]["value"]) == (None, b"garbage")
    assert "schema id" in rows[100]["avro_error"]


@pytest.mark.parametrize(
    ("flags", "level", "values"),
    [
        ([], "read_committed", [b"committed", b"plain"]),
        (["--isolation", "read_uncommitted"], "read_uncommitted", [b"committed", b"aborted", b"plain"]),
    ],
    ids=["by default", "uncommitted"],
)
def test_records_of_aborted_transactions_are_not_loaded_unless_that_is_asked_for(
    kafka_broker: Broker,
    client: Client,
    kafka_topic: str,
    tmp_path: Path,
    flags: list[str],
    level: str,
    values: list[bytes],
) -> None:
    with client.twin() as own, own.producer(transactional_id=kafka_topic) as producer:
        producer.init_transactions()
        for value in (b"committed", b"aborted"):
            producer.begin_transaction()
            producer.send(kafka_topic, 0, [value])
            producer.flush()
            producer.commit_transaction() if value == b"committed" else producer.abort_transaction()
    client.produce(kafka_topic, 0, [b"plain"])
    arguments = ["--topics", kafka_topic, "--json", *flags]
    told = json.loads(ended(started("kafkalite load", kafka_broker, tmp_path, *arguments), tmp_path))
    assert (told["isolation_level"], told["records"], told["lag"]) == (level, len(values), 0)
    table = load.dataset(tmp_path / "loaded").to_table(columns=["offset", "value"]).sort_by("offset")
    assert table.column("value").to_pylist() == values


def test_followed_until_a_signal(kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path) -> None:
    process = started("kafkalite load", kafka_broker, tmp_path, "--topics", f"{kafka_topic}.*", "--follow", "0.2")

    def rows() -> int:
        assert process.poll() is None, (tmp_path / "errors").read_text()[-4000:]
        return sum(file.rows for file in load.files(tmp_path / "loaded")) if (tmp_path / "loaded").exists() else 0

    try:
        client.produce(kafka_topic, 0, [b"x"] * 10)
        wait_until(lambda: rows() == 10, TIMEOUT_S, "the first rows")
        kafka_broker.create_topic(f"{kafka_topic}-2")
        client.produce(f"{kafka_topic}-2", 0, [b"x"] * 5)
        wait_until(lambda: rows() == 15, TIMEOUT_S, "rows of a new topic")
        process.send_signal(signal.SIGTERM)
        assert ended(process, tmp_path).splitlines()[-2].startswith("15 records in 2 files of ")
    finally:
        process.kill()
        process.wait()


def test_a_bad_record_is_one_line_and_nothing_else(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path
) -> None:
    """Neither Spark's warnings at its start, nor the traces that its tasks leave; those are where --spark-log says."""
    client.produce(kafka_topic, 0, [b'{"id": 1}', b"bad"])
    more = [
        "-t",
        kafka_topic,
        "--json-schema",
        "id INT",
        "-q",
        "--spark-log",
        str(tmp_path / "log"),
        "--engine",
        "spark",
    ]
    process = started("kafkalite load", kafka_broker, tmp_path, *more, "--engine", "spark")
    try:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    said = f"offset 1 of {kafka_topic}-0 cannot be decoded: the value is not JSON of the schema id INT"
    assert (process.returncode, out, (tmp_path / "errors").read_text()) == (2, "", f"kafkalite: {said}\n")
    assert "Spark" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_tree_that_is_installed_in_place_is_found_from_any_folder(
    kafka_broker: Broker, client: Client, kafka_topic: str, tmp_path: Path
) -> None:
    """Spark's workers list the folders on their path, in which such a tree (`pip install -e`) does not stand."""
    client.produce(kafka_topic, 0, [b"x"])
    words = [sys.executable, "-m", "kafkalite", "load", "-b", kafka_broker.bootstrap_servers, "-t", kafka_topic]
    words += ["--to", "loaded", "--master", "local[1]", "--conf", "spark.driver.host=127.0.0.1", "--json"]
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["records"] == 1
