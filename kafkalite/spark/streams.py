"""Count rows in time windows, join streams and start queries: short functions over Spark's Structured Streaming.

    window_counts     tumbling windows, or sliding windows with `slide`
    session_counts    windows that end when nothing arrives for `gap`
    join_store        rows with the columns of a table, which is read once
    with_store        the same for each batch of a stream; the table is read again when it is older than `refresh_s`
    join_streams      rows of two streams whose times are close to each other
    start             starts a query, and retries if Spark's wait for the Python worker times out

Spark handles state, watermarks and restarts. Durations are as Spark writes them, "10 seconds" or "5 minutes". `late`
(how late rows may arrive) and `after` (how far apart joined rows may be) are required, because they bound Spark's
memory.

Thread rule: the functions share no state; the result of with_store belongs to one query.
"""

from __future__ import annotations

import logging
import time as clock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

logger = logging.getLogger(__name__)

START, END, COUNT = "start", "end", "count"
JOINS: Final = ("inner", "left")
STARTS_MAX: Final = 3
NOT_CONNECTED: Final = "Python worker failed to connect back"
"""Spark's message if the process of a streaming source is not connected ten seconds after its start."""
STARTING: Final = "Initializing"
"""Prefix of a query's status until the processes of its sources are connected."""
POLL_S: Final = 0.05


def window_counts(
    frame: DataFrame,
    width: str,
    *,
    late: str,
    slide: str | None = None,
    by: Sequence[str] = (),
    time: str = "timestamp",
) -> DataFrame:
    """Count the rows in each window of `width`. Return the columns `by`, start, end and count.

    A window starts every `slide` (default: `width`). A row counts if it is at most `late` older than the newest row. In
    output mode append, a window is emitted once, when no further rows can count; in mode update, whenever it changes.
    """
    from pyspark.sql import functions as sql

    return counted(frame, sql.window(time, width, slide), late, by, time)


def session_counts(
    frame: DataFrame, gap: str, *, late: str, by: Sequence[str] = (), time: str = "timestamp"
) -> DataFrame:
    """Count rows in windows that last until nothing arrives for `gap`, separately for each value of `by`.

    Columns and `late` are as for window_counts. Streams need output mode append and at least one column in `by`. Raises
    ValueError without `by`.
    """
    from pyspark.sql import functions as sql

    if not by:
        raise ValueError("by=… must contain at least one column")
    return counted(frame, sql.session_window(time, gap), late, by, time)


def counted(frame: DataFrame, window: Column, late: str, by: Sequence[str], time: str) -> DataFrame:
    """Count the rows in windows."""
    from pyspark.sql import functions as sql

    require_columns(frame, [*by, time])
    groups = frame.withWatermark(time, late).groupBy(*by, window.alias("in_window")).agg(sql.count("*").alias(COUNT))
    return groups.select(*by, sql.col("in_window.start").alias(START), sql.col("in_window.end").alias(END), COUNT)


def join_store(frame: DataFrame, store: DataFrame, on: str | Sequence[str], *, how: str = "left") -> DataFrame:
    """Return rows with the columns of `store`. `how` is "left" (null without a match) or "inner".

    The store is sent to every executor, so it must fit into one executor's memory. A stream keeps the store's files
    that exist at its start; with_store reads the store again.
    """
    from pyspark.sql import functions as sql

    if how not in JOINS:
        raise ValueError(f"unknown how={how!r}; expected {' or '.join(map(repr, JOINS))}")
    names = [on] if isinstance(on, str) else list(on)
    require_columns(frame, names)
    require_columns(store, names)
    require_disjoint(frame, store, names)
    return frame.join(sql.broadcast(store), names, how)


def with_store(
    load: Callable[[SparkSession], DataFrame],
    on: str | Sequence[str],
    write: Callable[[DataFrame, int], None],
    *,
    how: str = "left",
    refresh_s: float = 0.0,
) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that joins each batch with the store and passes the rows to `write`.

    `load` returns the store. It is called again after `refresh_s` seconds; 0: for each batch. So a repeated batch may
    be joined with a newer store.
    """
    known: list[tuple[float, DataFrame]] = []

    def each(batch: DataFrame, number: int) -> None:
        now = clock.monotonic()
        if not known or now - known[0][0] >= refresh_s:
            known[:] = [(now, load(batch.sparkSession))]
        write(join_store(batch, known[0][1], on, how=how), number)

    return each


def join_streams(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    left_time: str,
    right_time: str,
    after: str,
    before: str = "0 seconds",
    late: str,
    how: str = "inner",
) -> DataFrame:
    """Return pairs of rows with the same `on` and close times.

    The right row is at most `before` earlier and at most `after` later than the left row. `late` applies to both sides,
    as for window_counts. With how="left", a row without a partner is emitted with nulls when no partner can arrive any
    more. Columns other than `on` need different names.
    """
    from pyspark.sql import functions as sql

    if how not in JOINS:
        raise ValueError(f"unknown how={how!r}; expected {' or '.join(map(repr, JOINS))}")
    names = [on] if isinstance(on, str) else list(on)
    if not names:
        raise ValueError("on=… must contain at least one column")
    require_columns(left, [*names, left_time])
    require_columns(right, [*names, right_time])
    require_disjoint(left, right, names)
    others = right.withColumnsRenamed({name: f"right {name}" for name in names})
    near = sql.expr(
        f"`{right_time}` >= `{left_time}` - INTERVAL {before} AND `{right_time}` <= `{left_time}` + INTERVAL {after}"
    )
    for name in names:
        near &= sql.col(name) == sql.col(f"right {name}")
    pairs = left.withWatermark(left_time, late).join(others.withWatermark(right_time, late), near, how)
    return pairs.drop(*(f"right {name}" for name in names))


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, wait until its sources are connected, and return it.

    Spark waits ten seconds for the Python process of a source and then ends the query, and no setting changes that. A
    query that ends for this reason has read nothing, so it is started again, with at most three starts in all.
    """
    for left in reversed(range(STARTS_MAX)):
        query = writer.start()
        while query.isActive and query.status["message"].startswith(STARTING):
            clock.sleep(POLL_S)
        if query.isActive or not left or NOT_CONNECTED not in str(query.exception()):
            break
        logger.warning("query %s is started again: %s", query.name or query.id, NOT_CONNECTED)
    return query


def require_columns(frame: DataFrame, names: Sequence[str]) -> None:
    """Raise ValueError for an unknown column."""
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"unknown column {name!r}; choose from {', '.join(frame.columns)}")


def require_disjoint(left: DataFrame, right: DataFrame, names: Sequence[str]) -> None:
    """Raise ValueError for columns that both sides have, except those in `names`."""
    both = sorted(set(left.columns) & set(right.columns) - set(names))
    if both:
        raise ValueError(f"both sides have {', '.join(both)}; rename or drop it on one side")
