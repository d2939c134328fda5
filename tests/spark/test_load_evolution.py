"""Changes of a topic's columns, read by Spark: with the schema of `kafkalite load schema`, and after compaction."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client, ColumnReader
from kafkalite.failures.headers import ERROR as LETTER_ERROR
from kafkalite.failures.headers import letter_of
from kafkalite.load import native
from kafkalite.load.compaction import compact
from kafkalite.load.json_values import JsonValues
from kafkalite.load.table_schema import spark_schemas
from kafkalite.spark import load
from kafkalite.spark.json_values import decode_json
from tests.kit.harness.schema_changes import CHANGES, fill

pytestmark = [pytest.mark.spark]

ONLY_COMPACTED = {"a field is renamed", "long to double"}
"""What Spark cannot do with a schema alone."""


def values(frame) -> list[Any]:
    return [plain(row.decoded) for row in frame.orderBy("offset").select("decoded").collect()]


def plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize("name", CHANGES)
def test_spark_reads_both_hours(spark, tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    fill(tmp_path, change)
    if name in ONLY_COMPACTED:
        with pytest.raises(load.LoadError, match="older than a rename or a wider type; run `kafkalite load"):
            load.read(spark, tmp_path)
    else:
        assert values(load.read(spark, tmp_path)) == change.read
        assert values(spark.read.schema(spark_schemas(tmp_path)["t"]).parquet(str(tmp_path))) == change.read
    compact(tmp_path)
    assert values(load.read(spark, tmp_path, "t")) == change.read
    assert values(spark.read.parquet(str(tmp_path))) == change.read


@pytest.fixture
def client(kafka_broker: Broker):
    with Client(kafka_broker.bootstrap_servers) as opened:
        yield opened


def letters_of(client: Client, topic: str) -> list[tuple[bytes, str | None]]:
    """Value and reason of each dead letter."""
    reader = ColumnReader(client, isolation_level="read_committed")
    rows = [row for batch in reader.read(topic, 0, 0, client.end_offset(topic, 0)) for row in batch.to_pylist()]
    headers = [tuple((each["key"], each["value"]) for each in row["headers"]) for row in rows]
    assert all(map(letter_of, headers))
    return [(row["value"], dict(each)[LETTER_ERROR].decode()) for row, each in zip(rows, headers, strict=True)]


@pytest.mark.integration
def test_folders_of_a_column_for_both_engines(
    spark, kafka_broker: Broker, kafka_topic: str, client: Client, tmp_path: Path
) -> None:
    columns = "id BIGINT, country STRING"
    common: dict[str, Any] = {"bootstrap_servers": kafka_broker.bootstrap_servers, "topics": [kafka_topic]}
    layout = {"flatten": "_", "partition_by": "country"}
    decode = partial(decode_json, schema=columns)
    texts = ["DE", "a/b", "x=y", "ü", "", None, "07", "50%", "DE", "FR"]
    sent = [json.dumps({"id": number, "country": text}).encode() for number, text in enumerate(texts)]
    client.produce(kafka_topic, 0, sent[:8])
    assert load.load(spark, tmp_path, transform=decode, keep_values=False, **layout, **common).rows == 8
    client.produce(kafka_topic, 0, sent[8:9])
    assert native.load(tmp_path, values=JsonValues(columns, "failfast"), **common).rows == 1
    client.produce(kafka_topic, 0, sent[9:])
    assert load.load(spark, tmp_path, transform=decode, keep_values=False, **common).rows == 1
    expected = [(number, text or None) for number, text in enumerate(texts)]
    for _ in range(2):
        for frame in (
            load.read(spark, tmp_path, kafka_topic),
            spark.read.schema(spark_schemas(tmp_path)[kafka_topic]).parquet(str(tmp_path)),
        ):
            rows = frame.select("id", "country").orderBy("id").collect()
            assert [(row.id, row.country) for row in rows] == expected
        compact(tmp_path)
    client.produce(kafka_topic, 0, sent[:1])
    with pytest.raises(load.LoadError, match="is partitioned by country, not by day"):
        load.load(spark, tmp_path, transform=decode, partition_by="day", **common)


@pytest.mark.integration
@pytest.mark.parametrize("keep_values", [False, True], ids=["without values", "with values"])
def test_a_value_that_does_not_fit_is_a_dead_letter(
    spark, kafka_broker: Broker, kafka_topic: str, client: Client, tmp_path: Path, keep_values: bool
) -> None:
    """The bytes of the record arrive in the topic of letters, and the load continues."""
    bad = f"{kafka_topic}-bad"

    def run(columns: str, *sent: bytes, **more: Any) -> tuple[int, int]:
        client.produce(kafka_topic, 0, list(sent))
        summary = load.load(
            spark,
            tmp_path,
            bootstrap_servers=kafka_broker.bootstrap_servers,
            topics=[kafka_topic],
            transform=partial(decode_json, schema=columns, mode="dlq" if "dead_letters" in more else "permissive"),
            keep_values=keep_values,
            **more,
        )
        return summary.rows, summary.letters

    first = [b'{"id": 1, "who": {"name": "a"}}', b"[]"]
    assert run("id INT, who STRUCT<name: STRING>", *first, dead_letters=bad) == (1, 1)
    second = [b'{"tags": ["x"]}', b'{"id": "two", "tags": []}', b'{"who": "me"}']
    assert run("id STRING, tags ARRAY<STRING>, who STRING", *second, dead_letters=bad) == (1, 2)
    assert run("id BIGINT, who STRING", b'{"id": 3}', b'{"id": 4, "who": "me"}', mark_misfits=True) == (2, 0)
    expected = [
        {"id": 1, "who": {"name": "a"}, "tags": None},
        {"id": None, "who": None, "tags": ["x"]},
        {"id": 3, "who": None, "tags": None},
        None,
    ]
    assert values(load.read(spark, tmp_path)) == expected
    rows = load.dataset(tmp_path).to_table().sort_by("offset").to_pylist()
    assert rows[-1]["json_error"] == "column decoded.who is string here, but struct<name: string> in the table"
    good = [first[0], second[0], b'{"id": 3}'] if keep_values else [None] * 3
    assert [row["value"] for row in rows] == [*good, b'{"id": 4, "who": "me"}'], "bad values keep their bytes"
    (_, not_json), *misfits = letters_of(client, bad)
    assert not_json.startswith("the value is not JSON of the schema")
    assert misfits == [
        (second[1], "column decoded.id is string here, but int32 in the table"),
        (second[2], "column decoded.who is string here, but struct<name: string> in the table"),
    ]
    with pytest.raises(
        load.LoadError, match=r"offset 8 of .* does not fit: column decoded.id is string here, but int64 in the table"
    ):
        run("id STRING", b'{"other": 5}', b'{"id": "five"}')
