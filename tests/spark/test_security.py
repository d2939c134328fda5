"""Source, sink and load through TLS and SASL; no plan shows a password."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.client import Client
from tests.kit.harness.sasl_broker import PASSWORD, SaslTlsBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslTlsBroker]:
    with SaslTlsBroker(tmp_path_factory.mktemp("sasl")) as broker:
        yield broker


def settings(sasl: SaslTlsBroker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(sasl.authority_file),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'x.ScramLoginModule required username="bob" password="{PASSWORD}";',
    }


def options(sasl: SaslTlsBroker) -> dict[str, str]:
    named = {f"kafka.{key}": text for key, text in settings(sasl).items()}
    return {**named, "kafka.bootstrap.servers": sasl.address("SASL_SSL")}


def test_batches_and_streams_through_tls_and_scram(
    spark: SparkSession, sasl: SaslTlsBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("spark-sasl", "spark-sasl-copy"):
        sasl.broker.create_topic(topic, 2)
    rows = spark.range(1000).selectExpr("cast(id as string) as value")
    rows.write.format("kafkalite").options(**options(sasl)).option("topic", "spark-sasl").mode("append").save()
    frame = spark.read.format("kafkalite").options(**options(sasl)).option("subscribe", "spark-sasl").load()
    assert sorted(int(row.value) for row in frame.collect()) == list(range(1000))
    frame.explain(mode="extended")
    assert PASSWORD not in capsys.readouterr().out
    stream = (
        spark.readStream.format("kafkalite")
        .options(**options(sasl))
        .option("subscribe", "spark-sasl")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.selectExpr("value")
        .writeStream.format("kafkalite")
        .options(**options(sasl))
        .option("topic", "spark-sasl-copy")
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    with Client(sasl.address("PLAINTEXT")) as client:
        count = 0
        for partition in client.topic("spark-sasl-copy").partitions:
            for chunk in client.read("spark-sasl-copy", partition.partition):
                count += len(chunk.columns.values)
    assert count == 1000


def test_wrong_password_is_a_sentence_without_it(spark: SparkSession, sasl: SaslTlsBroker) -> None:
    wrong = options(sasl) | {
        "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="bob" password="not a secret";'
    }
    with pytest.raises(Exception, match="invalid credentials") as error:
        spark.read.format("kafkalite").options(**wrong).option("subscribe", "spark-sasl").load().collect()
    assert "not a secret" not in str(error.value)


@pytest.mark.slow
def test_load_command_with_a_file_of_settings(sasl: SaslTlsBroker, tmp_path: Path) -> None:
    with Client(sasl.address("PLAINTEXT")) as client:
        client.admin.create_topic("to-load")
        client.produce("to-load", 0, [b"one", b"two"])
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in settings(sasl).items()))
    done = subprocess.run(
        [
            sys.executable, "-m", "kafkalite", "load", "--topics", "to-load", "-b", sasl.address("SASL_SSL"),
            "--command-config", str(config), "--to", str(tmp_path / "loaded"),
        ],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2" in done.stdout + done.stderr
    assert list((tmp_path / "loaded").rglob("*.parquet"))
