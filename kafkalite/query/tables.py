"""Present a topic as a table of DuckDB. Each scan in a statement reads the topic as a new Arrow stream.

    scan ─▶ a ColumnReader ─▶ partition by partition, from start to end ─▶ key and value in the requested form

    topic       VARCHAR               timestamp       TIMESTAMP WITH TIME ZONE
    partition   INTEGER               timestampType   INTEGER: 0 the producer's, 1 the broker's
    offset      BIGINT                headers         STRUCT(key VARCHAR, value BLOB)[]
    key, value  VARCHAR, BLOB or, with a schema registry, the type of the topic's latest schema

The start and end offsets are fixed when the table is created, so that every scan reads the same range. Records are not
cached.

Thread rule: a scan runs on one of DuckDB's threads, with its own client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.avro.decoder import AvroDecoder, DecodeError
from kafkalite.client.columns.arrow import COLUMNS, pyarrow, schema_of
from kafkalite.client.columns.column_reader import ColumnReader
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.model import TopicPartition

KINDS: Final = ("text", "bytes", "avro")
"""The forms of keys and values."""


class QueryError(Exception):
    """A statement that cannot be executed. The message is one sentence."""


class Values:
    """A converter of a topic's keys or values to an Arrow column."""

    def __init__(self, field: str, kind: str, topic: str, registry: Callable[[], RegistryClient] | None) -> None:
        """Create the converter. QueryError if the registry does not respond, or has no schema for the topic.

        `field` is "key" or "value". `kind` is one of KINDS.
        """
        pa = pyarrow()
        self._field = field
        self._kind = kind
        self._open = registry
        self._subject = f"{topic}-{field}"
        self._schema: Any = None
        if kind == "avro":
            assert registry is not None, "what decodes Avro has a registry"
            with registry() as client:
                decoder = self._decoder(client)
            self._schema = decoder.schema
            self.type = decoder.arrow_type
        else:
            self.type = pa.string() if kind == "text" else pa.binary()

    def _decoder(self, client: RegistryClient) -> AvroDecoder:
        try:
            if self._schema is not None:
                return AvroDecoder(client, self._schema)
            return AvroDecoder.of_subject(client, self._subject)
        except RegistryUnreachable as error:
            raise QueryError(f"cannot reach the schema registry: {error}") from error
        except RegistryRefused as error:
            raise QueryError(f"the schema registry has no {self._subject}: {error}") from error

    def converter(self, client: RegistryClient | None) -> Callable[[Any], Any]:
        """Return a function that converts a binary array to `type`.

        It raises `_Bad` for a row that cannot be converted.
        """
        if self._kind == "bytes":
            return lambda array: array
        if self._kind == "text":
            return self._text
        assert client is not None, "what decodes Avro has a registry"
        decoder = self._decoder(client)

        def decode(array: Any) -> Any:
            try:
                return decoder.decode(array).values
            except DecodeError as error:
                about = f"schema id {error.schema_id}: " if error.schema_id >= 0 else ""
                raise _Bad(error.row, f"the {self._field} is not valid Avro: {about}{error.reason}") from error

        return decode

    def _text(self, array: Any) -> Any:
        pa = pyarrow()
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            for row, raw in enumerate(array.to_pylist()):
                try:
                    (raw or b"").decode()
                except UnicodeDecodeError as error:
                    raise _Bad(
                        row, f"the {self._field} is not UTF-8 text (use --{self._field} bytes to read it)"
                    ) from error
            raise

    @property
    def registry(self) -> Callable[[], RegistryClient] | None:
        """The function that creates a registry client for a scan; None if no registry is needed."""
        return self._open if self._kind == "avro" else None


class _Bad(Exception):
    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class TopicTable:
    """One topic as a table. DuckDB reads it through Arrow's PyCapsule interface.

    `ranges`     partition → start and end offset
    `columns`    the names of the table's columns, from COLUMNS
    `values`     "key" and "value" → their converters, if they are among the columns
    `failed`     a function that is called with the exception that ends a scan, because DuckDB reports only its text
    `window`     select timestamps from the first to before the second, in ms since 1970; None is no limit
    """

    def __init__(
        self,
        open_client: Callable[[], Client],
        ranges: Mapping[TopicPartition, tuple[int, int]],
        columns: tuple[str, ...],
        values: Mapping[str, Values],
        isolation_level: str,
        failed: Callable[[Exception], None],
        window: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._open_client = open_client
        self._ranges = dict(ranges)
        self._columns = columns
        self._values = dict(values)
        self._isolation_level = isolation_level
        self._failed = failed
        self._window = window
        pa = pyarrow()
        self.schema = pa.schema(
            [
                pa.field(field.name, self._values[field.name].type if field.name in self._values else field.type)
                for field in schema_of(columns)
            ]
        )

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pyarrow().RecordBatchReader.from_batches(self.schema, self._scan())
        return reader.__arrow_c_stream__(requested_schema)

    def _scan(self) -> Iterator[Any]:
        try:
            yield from self._batches()
        except (ClientError, KafkaError, QueryError, RegistryRefused, RegistryUnreachable, OSError) as error:
            self._failed(error)
            raise

    def _batches(self) -> Iterator[Any]:
        opened = next((values.registry for values in self._values.values() if values.registry is not None), None)
        registry = None if opened is None else opened()
        try:
            convert = {name: values.converter(registry) for name, values in self._values.items()}
            with (
                self._open_client() as client,
                ColumnReader(client, isolation_level=self._isolation_level, columns=self._read_columns()) as reader,
            ):
                for key, (start, end) in self._ranges.items():
                    for batch in reader.read(key.topic, key.partition, start, end):
                        yield self._converted(key, self._within(batch), convert)
        finally:
            if registry is not None:
                registry.close()

    def _read_columns(self) -> tuple[str, ...]:
        """Return the columns to read from the topic.

        They include offsets if values are converted, for errors, and timestamps if there is a window.
        """
        needed = {*self._columns, *(("offset",) if self._values else ()), *(("timestamp",) if self._is_bounded else ())}
        return tuple(name for name in COLUMNS if name in needed)

    @property
    def _is_bounded(self) -> bool:
        return self._window != (None, None)

    def _within(self, batch: Any) -> Any:
        """Return the rows whose timestamp is in the window."""
        if not self._is_bounded:
            return batch
        pa = pyarrow()
        from pyarrow import compute

        since, until = self._window
        stamps = batch.column("timestamp").cast(pa.int64())  # microseconds
        inside = compute.greater_equal(stamps, pa.scalar(max(since or 0, 0) * 1000, pa.int64()))
        if until is not None:
            inside = compute.and_(inside, compute.less(stamps, pa.scalar(until * 1000, pa.int64())))
        return batch.filter(inside)

    def _converted(self, key: TopicPartition, batch: Any, convert: Mapping[str, Callable[[Any], Any]]) -> Any:
        arrays = []
        for name in self._columns:
            array = batch.column(name)
            if name in convert:
                try:
                    array = convert[name](array)
                except _Bad as bad:
                    offset = batch.column("offset")[bad.row].as_py()
                    raise QueryError(f"{key} offset {offset}: {bad}") from bad
            arrays.append(array)
        return pyarrow().RecordBatch.from_arrays(arrays, schema=self.schema)


def columns_for(wanted: frozenset[str] | None) -> tuple[str, ...]:
    """Return the columns of a topic that are among these names; all columns for None.

    There is always at least one column, so that a statement can count rows.
    """
    found = tuple(name for name in COLUMNS if wanted is None or name.lower() in wanted)
    return found or ("offset",)
