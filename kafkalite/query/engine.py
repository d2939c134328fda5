"""Execute SQL statements over topics with DuckDB.

    SQL ─▶ Statement ─▶ a TopicTable for each topic that it names ─▶ DuckDB ─▶ Arrow record batches

A table name is first looked up as a topic: `from web.clicks` and `from "web.clicks"` are the topic web.clicks. If there
is no such topic, DuckDB resolves the name: as a name in WITH, a file (`from 'rooms.csv'`), or a table function.

DuckDB runs in this process. It loads no extensions from the network. A table name cannot refer to a Python variable.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import tempfile
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalite.base.extras import needs_extra
from kafkalite.client import Client
from kafkalite.client.cluster import ISOLATIONS
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.query.statement import NoStatementError, parse
from kafkalite.query.tables import KINDS, QueryError, TopicTable, Values, columns_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite.avro.client import RegistryClient

ROWS_MAX: Final = 10_000
"""Maximum rows of a record batch of the result."""
SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "TimeZone": "UTC",
}
MALFORMED: Final = "Malformed JSON"
BAD_INPUT: Final = re.compile(r'Input: "(.*?)(\ufffd?\.\.\.)?"(?: when casting [^\n]*)?(?:\n\nLINE .*)?\Z', re.DOTALL)
"""The text that is not JSON, cut after about 50 bytes; a NUL is a backslash and a zero."""
FIRST_BAD_JSON: Final = (
    'select partition, "offset" from records where {field} is not null and not json_valid({field})'
    " and case when $cut then starts_with({text}, $input) else {text} = $input end limit 1"
)
SHOWN_TEXT: Final = r"replace({field}, chr(0), '\0')"
MISSING: Final = re.compile(r"Table with name (\S+) does not exist")


def duckdb() -> Any:
    """Import duckdb and return the module. QueryError if duckdb or pyarrow is not installed."""
    try:
        importlib.import_module("pyarrow")
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise QueryError(needs_extra("queries need duckdb and pyarrow", "query")) from error


class Queries:
    """An engine that executes SQL statements over topics, one at a time. A context manager.

    `open_client`        the bootstrap servers, or a function that creates a Client; each scan has its own client
    `key`, `value`       the form of keys and values: UTF-8 "text", "bytes", or "avro" (by the latest schema of the
                         subjects TOPIC-key and TOPIC-value)
    `open_registry`      a function that creates a RegistryClient; required for Avro
    `since`, `until`     select records with timestamps from `since` to before `until`, in ms since 1970; None is no
                         limit. With a limit, records without a timestamp are not selected
    `isolation_level`    "read_committed" excludes records of aborted and open transactions
    """

    def __init__(
        self,
        open_client: Callable[[], Client] | str,
        *,
        key: str = "text",
        value: str = "text",
        open_registry: Callable[[], RegistryClient] | None = None,
        since: int | None = None,
        until: int | None = None,
        isolation_level: str = "read_committed",
    ) -> None:
        for kind in (key, value):
            if kind not in KINDS:
                raise ValueError(f"unknown type {kind!r}; expected one of {', '.join(KINDS)}")
        if "avro" in {key, value} and open_registry is None:
            raise ValueError("Avro requires a schema registry; give its URL")
        if isolation_level not in ISOLATIONS:
            raise ValueError(f"isolation_level must be {' or '.join(ISOLATIONS)}, not {isolation_level!r}")
        self._open_client = functools.partial(Client, open_client) if isinstance(open_client, str) else open_client
        self._kinds = {"key": key, "value": value}
        self._open_registry = open_registry
        self._window = (since, until)
        self._isolation_level = isolation_level
        self._duckdb = duckdb()
        self._spill = tempfile.TemporaryDirectory(prefix="kafkalite-query-")
        self._connection: Any = None
        self._failure: Exception | None = None
        self._ranges_read: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        """By topic: the offsets that the current statement reads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the current statement. Idempotent."""
        self._end()
        self._spill.cleanup()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, text: str) -> QueryResult:
        """Execute one SELECT statement. The previous result becomes invalid.

        QueryError for an invalid statement, a missing topic or an invalid record; ClientError, KafkaError.
        """
        self._end()
        self._failure = None
        self._ranges_read = {}
        self._connection = self._duckdb.connect(":memory:", config={**SETTINGS, "temp_directory": self._spill.name})
        try:
            statement = parse(self._connection, text)
        except NoStatementError as error:
            raise QueryError(str(error)) from error
        with self.explained():
            self._register(statement.tables, columns_for(statement.columns))
            return QueryResult(self, self._connection.sql(text).to_arrow_reader(ROWS_MAX))

    def _register(self, tables: frozenset[tuple[str, ...]], columns: tuple[str, ...]) -> None:
        """Register a table for each name that is a topic. QueryError if two topics differ only in case."""
        if not tables:
            return
        with self._open_client() as client:
            known = client.topics()
            spelled: dict[str, str] = {}
            for path in sorted(tables):
                topic = ".".join(path)
                if topic not in known:
                    continue
                twin = spelled.setdefault(topic.lower(), topic)
                if twin != topic:
                    raise QueryError(
                        f"topics {twin} and {topic} differ only in case, which SQL ignores; query one of them at a time"
                    )
                self._name(path, self._table(client, topic, columns))

    def _name(self, path: tuple[str, ...], table: TopicTable) -> None:
        """Register a table under a name of one to three parts.

        In DuckDB, `a.b` is a table in a schema, and `a.b.c` is a table in a schema of a catalog.
        """
        if len(path) == 1:
            self._connection.register(path[0], table)
            return
        hidden = f"topic {'.'.join(path)}"  # no topic has such a name
        self._connection.register(hidden, table)
        if len(path) == 3:
            self._connection.execute(f"attach if not exists ':memory:' as {quoted(path[0])}")
        self._connection.execute(f"create schema if not exists {'.'.join(map(quoted, path[:-1]))}")
        self._connection.execute(f"create or replace view {'.'.join(map(quoted, path))} as from {quoted(hidden)}")

    def _table(self, client: Client, topic: str, columns: tuple[str, ...]) -> TopicTable:
        values = {
            field: Values(field, kind, topic, self._open_registry)
            for field, kind in self._kinds.items()
            if field in columns
        }
        ranges = self._ranges(client, topic)
        self._ranges_read[topic] = ranges
        return TopicTable(self._open_client, ranges, columns, values, self._isolation_level, self._note, self._window)

    def _ranges(self, client: Client, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the start and end offset to read in each partition.

        The end is always the partition's end, because an older record may follow a newer one.
        """
        keys = [TopicPartition(topic, part.partition) for part in client.topic(topic).partitions]
        isolation = ISOLATIONS[self._isolation_level]

        def offsets(at: int) -> dict[TopicPartition, int]:
            found = client.list_offsets(dict.fromkeys(keys, at), isolation=isolation)
            return {key: row.offset for key, row in found.items()}

        starts, ends = offsets(OFFSET_EARLIEST), offsets(OFFSET_LATEST)
        if self._window[0] is not None:
            since = offsets(self._window[0])
            starts = {key: since[key] if since[key] >= 0 else ends[key] for key in keys}
        return {key: (min(starts[key], ends[key]), ends[key]) for key in keys}

    def _note(self, error: Exception) -> None:
        """Store the exception that ended a scan, because DuckDB reports only its text."""
        self._failure = self._failure or error

    @contextlib.contextmanager
    def explained(self, *also: type[Exception]) -> Iterator[None]:
        """Return a context that replaces errors of DuckDB or Arrow.

        It raises the exception that caused the error, or else a QueryError.
        """
        try:
            yield
        except (self._duckdb.Error, UnicodeDecodeError, *also) as error:  # DuckDB may cut a text inside a character
            if self._failure is not None:
                raise self._failure from error
            text = error.object.decode(errors="ignore") if isinstance(error, UnicodeDecodeError) else str(error)
            raise QueryError(self._bad_json(text) or sentence(text)) from error

    def _bad_json(self, text: str) -> str | None:
        """Return an error message that names the record whose text is not JSON; None for another error.

        DuckDB's error only quotes the text, so this method searches the topics for it. If no record consists of the
        text, the message quotes it.
        """
        if MALFORMED not in text:
            return None
        quoted_text = BAD_INPUT.search(text)
        given = {"input": quoted_text[1] if quoted_text else "", "cut": not quoted_text or bool(quoted_text[2])}
        for topic, ranges in self._ranges_read.items():
            columns = ("key", "value", "topic", "partition", "offset")
            values = {name: Values(name, "text", topic, None) for name in ("value", "key")}
            table = TopicTable(
                self._open_client, ranges, columns, values, self._isolation_level, lambda _: None, self._window
            )
            with contextlib.suppress(self._duckdb.Error), self._duckdb.connect(":memory:", config=SETTINGS) as search:
                search.register("records", table)
                for field in values:
                    statement = FIRST_BAD_JSON.format(field=field, text=SHOWN_TEXT.format(field=field))
                    found = search.execute(statement, given).fetchone()
                    if found is not None:
                        return (
                            f"{topic}-{found[0]} offset {found[1]}: the {field} is not JSON; use try_cast({field} "
                            "as json) to get NULL instead"
                        )
        return f"{sentence(text)}; use try_cast(… as json) to get NULL for values that are not JSON"


class QueryResult:
    """The result of a statement as record batches. It can be iterated once. `schema` is its Arrow schema."""

    def __init__(self, queries: Queries, reader: Any) -> None:
        self._queries = queries
        self._reader = reader
        self.schema = reader.schema

    def __iter__(self) -> Iterator[Any]:
        from pyarrow import ArrowException

        with self._queries.explained(ArrowException, OSError):  # Arrow's reader wraps DuckDB's errors
            yield from self._reader


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def sentence(text: str) -> str:
    """Return DuckDB's error message without the type of the error and without the statement."""
    message = text.partition("\n\nLINE ")[0].replace("\n", " ").strip()
    kind, colon, rest = message.partition(" Error: ")
    if colon and " " not in kind:
        message = rest
    found = MISSING.match(message)
    return f"topic {found[1]} does not exist" if found else message.rstrip("!.")
