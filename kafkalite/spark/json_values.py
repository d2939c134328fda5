"""Decode JSON columns of a DataFrame with Spark's parser, and report errors as `decode_avro` does.

    decode_json(df, "id BIGINT, name STRING")   all columns of df, then: decoded struct │ error

Thread rule: the functions share no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.decoder import MODES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECODED, ERROR = "decoded", "json_error"
RAW: Final = "_kafkalite_not_decoded"
WITNESS: Final = "_kafkalite_checked"
NO_TEXT: Final = "the value is not valid UTF-8"
NO_JSON: Final = "the value is not JSON of the schema"


def decode_json(frame: DataFrame, schema: str, *, column: str = "value", mode: str = "failfast") -> DataFrame:
    """Return the DataFrame with the columns `decoded` and `json_error` added.

    `schema` is a struct as Spark writes it ("id BIGINT, name STRING"). Fields that a value lacks are null. Fields that
    the schema lacks are left out. In modes permissive and dlq, a bad value becomes null, with the reason in
    `json_error`. In mode failfast, a bad value fails the query. The error names the record if the frame has its topic,
    partition and offset.

    Raises ValueError for an unknown mode, and ParseException for a bad schema.
    """
    from pyspark.sql import functions as sql

    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    whole = f"{schema}, {RAW} STRING"
    text = sql.col(column).cast("string")
    parsed = sql.from_json(text, whole, {"columnNameOfCorruptRecord": RAW, "mode": "PERMISSIVE"})
    is_text = sql.expr(f"is_valid_utf8(cast(`{column}` as string))")
    checked = frame.withColumn(WITNESS, parsed)
    told = f"{NO_JSON} {schema}"[:500]
    why = (
        sql.when(sql.col(column).isNull(), sql.lit(None))
        .when(~is_text, sql.lit(NO_TEXT))
        .when(sql.col(WITNESS).isNull() | sql.col(f"{WITNESS}.{RAW}").isNotNull(), sql.lit(told))
    )
    good = sql.col(WITNESS).isNotNull() & why.isNull()
    value = sql.when(good, sql.col(WITNESS).dropFields(RAW))
    decoded = checked.withColumn(ERROR, why).withColumn(DECODED, value)
    if mode == "failfast":
        raised = sql.when(sql.col(ERROR).isNotNull(), sql.raise_error(place_of(frame, sql)))
        decoded = decoded.withColumn(ERROR, raised.cast("string"))
    return decoded.select(*frame.columns, DECODED, ERROR)


def check_schema(spark: SparkSession, schema: str) -> None:
    """Raise ParseException for an invalid schema before any value is decoded."""
    from pyspark.sql import functions as sql

    _ = spark.range(1).select(sql.from_json(sql.lit("{}"), schema)).schema


def place_of(frame: DataFrame, sql: Any) -> Any:
    """Return a column with the error text. It names the bad record if the frame has topic, partition and offset."""
    reason = sql.col(ERROR)
    if not {"topic", "partition", "offset"} <= set(frame.columns):
        return sql.concat(sql.lit("a value cannot be decoded: "), reason)
    place = sql.concat(sql.col("topic"), sql.lit("-"), sql.col("partition").cast("string"))
    at = sql.concat(sql.lit("offset "), sql.col("offset").cast("string"), sql.lit(" of "), place)
    return sql.concat(at, sql.lit(" cannot be decoded: "), reason)
