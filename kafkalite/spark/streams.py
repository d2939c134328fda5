"""What stream jobs are made of, kept thin over Structured Streaming: counts in windows, and joins.

    window_counts     tumbling windows, or sliding ones with `slide`
    session_counts    windows that end where nothing came for `gap`
    join_store        rows with what a table knows of them, the table read once
    with_store        the same for each batch of a stream, the table read again when it is older than `refresh_s`
    join_streams      rows of two streams that came within a time of each other

Each of them gives a DataFrame (with_store a function for foreachBatch) and keeps nothing of its own: state, watermarks
and restarts are Spark's. Times are as Spark writes them, "10 seconds" or "5 minutes". What bounds Spark's memory has to
be said: how late rows may come, and how far apart two streams may be.

Thread rule: functions; what with_store gives belongs to one query.
"""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

START, END, COUNT = "start", "end", "count"
JOINS: Final = ("inner", "left")


def window_counts(
    frame: DataFrame,
    width: str,
    *,
    late: str,
    slide: str | None = None,
    by: Sequence[str] = (),
    time: str = "timestamp",
) -> DataFrame:
    """Columns `by`, start, end and count: rows in each window of `width`, one beginning every `slide` (`width`).

    `late` is how much older than the newest row one may be and still count. In output mode append a window is given
    once, when that has passed; in update mode whenever it changes.
    """
    from pyspark.sql import functions as sql

    return counted(frame, sql.window(time, width, slide), late, by, time)


def session_counts(
    frame: DataFrame, gap: str, *, late: str, by: Sequence[str] = (), time: str = "timestamp"
) -> DataFrame:
    """As window_counts, for windows that last until nothing came for `gap`, each value of `by` having its own.

    In a stream Spark has them in output mode append, and needs something to tell rows apart in `by`.
    """
    from pyspark.sql import functions as sql

    if not by:
        raise ValueError("by=… must contain at least one column")
    return counted(frame, sql.session_window(time, gap), late, by, time)


def counted(frame: DataFrame, window: Column, late: str, by: Sequence[str], time: str) -> DataFrame:
    """Rows in windows."""
    from pyspark.sql import functions as sql

    require_columns(frame, [*by, time])
    groups = frame.withWatermark(time, late).groupBy(*by, window.alias("in_window")).agg(sql.count("*").alias(COUNT))
    return groups.select(*by, sql.col("in_window.start").alias(START), sql.col("in_window.end").alias(END), COUNT)


def join_store(frame: DataFrame, store: DataFrame, on: str | Sequence[str], *, how: str = "left") -> DataFrame:
    """Rows with the columns that `store` has for them; `how` is "left" (null where it has none) or "inner".

    The store goes to every executor, so it has to fit into one's memory. A stream keeps the files that the store had
    when the query began: with_store looks again.
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
    """A function for foreachBatch: joins each batch with the store, and hands the rows to `write`.

    `load` is asked for the store again when that was `refresh_s` ago; 0 is for each batch. A batch that is done again
    may be joined with a newer store.
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
    """Pairs of rows with the same `on`, the right one at most `before` earlier and `after` later than the left one.

    `late` as for window_counts, on both sides. With how="left" a row without a partner is given with nulls once none
    can come any more. Columns other than `on` need different names.
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


def require_columns(frame: DataFrame, names: Sequence[str]) -> None:
    """ValueError for a column that is not there."""
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"unknown column {name!r}; choose from {', '.join(frame.columns)}")


def require_disjoint(left: DataFrame, right: DataFrame, names: Sequence[str]) -> None:
    """ValueError for columns of both sides that are not joined on."""
    both = sorted(set(left.columns) & set(right.columns) - set(names))
    if both:
        raise ValueError(f"both sides have {', '.join(both)}; rename or drop it on one side")
