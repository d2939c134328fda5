"""Changes of a topic's columns, read by Spark: with the schema of `kafkalite load schema`, and after compaction."""

from pathlib import Path
from typing import Any

import pytest

from kafkalite.load.compaction import compact
from kafkalite.load.table_schema import spark_schemas
from kafkalite.spark import load
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
