"""Decode and encode Avro columns of a DataFrame with kafkalite.avro, in batch and streaming queries (by mapInArrow).

    decode_avro(df, url, subject="orders-value")   all columns of df, then: decoded struct │ schema id │ error
    encode_avro(df, url, subject, schema)          all columns of df, then the messages

When decoding, the driver fetches or parses the reader's schema and sends it to the executors as text. So all executors
use the same schema until the query restarts.

Spark has fewer types than Avro. Nanoseconds are truncated to microseconds, times of day become integers, and bytes of a
fixed size become binary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.avro.client import RegistryClient
from kafkalite.avro.decoder import MODES, AvroDecoder, DecodeError
from kafkalite.avro.encoder import AvroEncoder
from kafkalite.avro.schema import parse
from kafkalite.failures.headers import ERROR as LETTER_ERROR
from kafkalite.failures.headers import OFFSET, PARTITION, TEXT_MAX, TOPIC
from kafkalite.load.avro_values import ERROR, SCHEMA_ID, as_spark, spark_type
from kafkalite.load.decoded import DECODED, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

DECODER_COUNT_MAX: Final = 16
"""Decoders that a Python worker keeps, one per registry and schema."""

_decoders: dict[tuple[str, str], AvroDecoder] = {}
"""Decoders of this worker process, which runs one task at a time."""


def decode_avro(
    frame: DataFrame,
    registry_url: str,
    *,
    subject: str | None = None,
    reader_schema: str | None = None,
    column: str = "value",
    mode: str = "failfast",
) -> DataFrame:
    """Return the DataFrame with the columns `decoded`, `schema_id` and `avro_error` added.

    The reader's schema is `reader_schema`, or the current latest version of `subject`. In modes permissive and dlq, a
    bad message becomes null, with the reason in `avro_error`. In mode failfast, a bad message fails the query.
    `dead_letters` turns the bad messages into records.

    Raises ValueError for an unknown mode, and unless exactly one of `reader_schema` and `subject` is given.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if (subject is None) == (reader_schema is None):
        raise ValueError("set either subject or reader_schema")
    with RegistryClient(registry_url) as registry:
        schema = registry.latest(subject).schema if subject is not None else parse(reader_schema or "")
        text = schema.standalone()
        made = spark_type(AvroDecoder(registry, text).arrow_type)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            decoded = decoder_of(registry_url, text).decode(batch.column(column))
            if mode == "failfast" and len(decoded.failed):
                row = int(decoded.failed[0])
                raise DecodeError(row, int(decoded.schema_ids[row]), decoded.reasons[0], place_of(batch, row))
            ids = pa.array(decoded.schema_ids, pa.int64(), mask=decoded.schema_ids < 0)
            columns = [*batch.columns, as_spark(decoded.values, made), ids, decoded.errors()]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, DECODED, SCHEMA_ID, ERROR])

    more = [
        StructField(DECODED, from_arrow_type(made)),
        StructField(SCHEMA_ID, LongType()),
        StructField(ERROR, StringType()),
    ]
    return frame.mapInArrow(decode, StructType([*frame.schema.fields, *more]))


def encode_avro(
    frame: DataFrame,
    registry_url: str,
    subject: str,
    schema: str,
    *,
    columns: Sequence[str] | None = None,
    output: str = "value",
    auto_register: bool = True,
) -> DataFrame:
    """Return the DataFrame with a binary column of messages. The column replaces an existing column named `output`.

    `columns` (default: all) are the record's fields, by name. The driver registers the schema once; without
    `auto_register`, it looks up the id of the registered schema.
    """
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StructField, StructType

    with RegistryClient(registry_url) as registry:
        known = _Known(AvroEncoder(registry, subject, schema, auto_register=auto_register).schema_id)
    names = list(frame.columns if columns is None else columns)
    kept = [field for field in frame.schema.fields if field.name != output]

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = AvroEncoder(known, subject, schema)  # type: ignore[arg-type]  # it needs only `register`
        for batch in batches:
            fields = [batch.column(field.name) for field in encoder.arrow_type if field.name in names]
            chosen = [field.name for field in encoder.arrow_type if field.name in names]
            messages = encoder.encode(pa.StructArray.from_arrays(fields, chosen))
            rest = [batch.column(field.name) for field in kept]
            yield pa.RecordBatch.from_arrays([*rest, messages], names=[*(field.name for field in kept), output])

    return frame.mapInArrow(encode, StructType([*kept, StructField(output, BinaryType())]))


def dead_letters(frame: DataFrame, topic: str) -> DataFrame:
    """Return the bad messages after `decode_avro` as rows for a Kafka sink: topic, key, value, headers.

    The frame needs the source's columns key, value, topic, partition and offset. Key and value do not change. Headers
    are kept if the frame has them (`includeHeaders`). `kafkalite.failures.headers` defines the added headers.
    """
    from pyspark.sql import functions as sql

    sources = [
        sql.col("topic"),
        sql.col("partition").cast("string"),
        sql.col("offset").cast("string"),
        sql.substring(sql.col(ERROR), 1, TEXT_MAX),
    ]
    added = sql.array(
        *(
            sql.struct(sql.lit(name).alias("key"), source.cast("binary").alias("value"))
            for name, source in zip((TOPIC, PARTITION, OFFSET, LETTER_ERROR), sources, strict=True)
        )
    )
    own = sql.col("headers") if "headers" in frame.columns else sql.lit(None).cast(frame_headers())
    headers = sql.concat(sql.coalesce(own, sql.array().cast(frame_headers())), added)
    bad = frame.where(sql.col(ERROR).isNotNull())
    return bad.select(sql.lit(topic).alias("topic"), "key", "value", headers.alias("headers"))


def frame_headers() -> str:
    """Return the type of a Kafka source's headers."""
    return "array<struct<key:string,value:binary>>"


class _Known:
    """A registry that sends no requests: it serves one schema whose id is already known."""

    def __init__(self, schema_id: int) -> None:
        self.schema_id = schema_id

    def register(self, _subject: str, _schema: str, _references: object = ()) -> int:
        return self.schema_id


def decoder_of(registry_url: str, schema: str) -> AvroDecoder:
    """Return this worker's decoder. It is created with the first batch and kept between tasks."""
    key = (registry_url, schema)
    found = _decoders.get(key)
    if found is None:
        if len(_decoders) >= DECODER_COUNT_MAX:
            _decoders.clear()
        found = _decoders[key] = AvroDecoder(RegistryClient(registry_url), schema, mode="permissive")
    return found
