"""Determine the folders of a topic's files, as in Hive, and flatten decoded values into columns.

    by hour      topic=clicks/date=2026-11-21/hour=19     by the records' timestamps in UTC; the default
    by day       topic=clicks/date=2026-11-21
    by a column  topic=clicks/country=DE                  the column is in the path and not in the file

A topic keeps the layout of its first load, so that readers find the same folders and columns everywhere.

Values in paths follow Hive's rules.

Thread rule: functions and immutable values; any thread.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.load.columns import Column, Columns, Struct
from kafkalite.load.decoded import DECODED
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Place = int | str | None
    """Where a record's file is: hours since 1970, or NO_HOUR; the text of a column's value, or None."""

HOUR: Final = "hour"
DAY: Final = "day"
SEPARATORS: Final = (".", "_")
HOUR_US: Final = 3_600_000_000
HOURS_PER_DAY: Final = 24
EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # UTC: paths have dates and hours without a zone
HOUR_MIN: Final = -17_259_888  # 0001-01-02
HOUR_MAX: Final = 70_389_504  # 9999-12-31 begins
NO_HOUR: Final = -(2**63)
NO_PLACE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for null and the empty text."""
PLACES_MAX: Final = 1_000
"""Values of a column in one commit."""
FOLDER_SIZE_MAX: Final = 255
"""Bytes of a folder's name."""
COLUMN_NAME: Final = re.compile(r"\w[\w.-]*")
SPECIAL: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
"""Characters that Hive encodes."""
OF_RECORDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"})
"""Columns that do not come from a decoded value."""
TAKEN: Final = frozenset(
    name.lower() for name in (*OF_RECORDS, DECODED, "date", "hour", "schema_id", "avro_error", "json_error")
)
"""Names that a flattened field does not get."""


class Layout(NamedTuple):
    """The layout of a topic's files: by hour, day or column, and whether decoded values are flattened."""

    by: str = HOUR
    """HOUR, DAY or the name of a column."""
    flatten: str = ""
    """The separator in the names of flattened fields; "" if decoded values stay one column."""

    @property
    def column(self) -> str | None:
        """The name of the column in the paths; None if the layout is by hour or day."""
        return None if self.by in {HOUR, DAY} else self.by

    def to_json(self) -> dict[str, str]:
        """Return the layout as it is written in a manifest."""
        return self._asdict()


def require_layout(partition_by: str | None, flatten: str | None) -> None:
    """Raise ValueError if these settings are not a layout.

    `partition_by` must be "hour", "day" or a column of decoded values. `flatten` must be a known separator.
    """
    if flatten not in {None, *SEPARATORS}:
        raise ValueError(f"flatten must be one of {' '.join(SEPARATORS)}, not {flatten!r}")
    if partition_by is None:
        return
    if not COLUMN_NAME.fullmatch(partition_by):
        raise ValueError(f"partition_by must be hour, day or the name of a column, not {partition_by!r}")
    if partition_by.lower() in TAKEN - {HOUR}:
        raise ValueError(f"partition_by must be hour, day or a column of decoded values, not {partition_by!r}")


# --- places -----------------------------------------------------------------------------------------------------------


def keys_of(layout: Layout, topic: str, batch: Any) -> tuple[Any, list[str | None] | None]:
    """Return a number for each row of a batch. Rows with equal numbers belong in the same folder.

    If the layout is by hour or day, numbers are hours since 1970. If it is by column, they are indexes into the second
    result, the list of the column's values. LoadError if the column's type cannot be in paths.
    """
    import numpy as np
    import pyarrow.compute as pc

    if layout.column is None:
        hours = hours_of(batch.column("timestamp"))
        if layout.by == DAY:
            hours = np.where(hours == NO_HOUR, NO_HOUR, hours // HOURS_PER_DAY * HOURS_PER_DAY)
        return hours, None
    number = batch.schema.get_field_index(layout.column)
    if number < 0:  # values no longer have the field
        return np.zeros(batch.num_rows, np.int64), [None]
    texts = texts_of(layout.column, topic, batch.column(number)).dictionary_encode()
    values = [text or None for text in texts.dictionary.to_pylist()]
    return pc.fill_null(texts.indices, len(values)).to_numpy(), [*values, None]


def texts_of(name: str, topic: str, array: Any) -> Any:
    """Return a column's values as text. LoadError if its type cannot be in paths."""
    import pyarrow as pa

    kind = array.type
    if not is_of_paths(kind):
        raise LoadError(
            f"column {name} of {topic} has type {kind}; partition by a column of text, integers, booleans or dates"
        )
    return array.cast(pa.string())


def is_of_paths(kind: Any) -> bool:
    """Return whether values of an Arrow type can be in paths."""
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_null)
    return any(test(kind) for test in tests)


def require_column(layout: Layout, topic: str, columns: Columns) -> None:
    """Raise LoadError if the layout is by a column that the topic does not have, or that was renamed."""
    names = [column.name for column in columns]
    if layout.column in {None, *names}:
        return
    renamed = [column.name for column in columns if layout.column in column.aliases]
    if renamed:
        raise LoadError(f"column {layout.column}, which partitions {topic}, was renamed to {renamed[0]}; keep its name")
    own = [name for name in names if name not in OF_RECORDS]
    hint = "; flatten the values to use their fields" if DECODED in own else ""
    raise LoadError(
        f"topic {topic} has no column {layout.column} to partition by (columns: {', '.join(own) or 'none'}){hint}"
    )


def require_few(layout: Layout, topic: str, count: int) -> None:
    """Raise LoadError if the layout is by a column and one commit has too many different values of it."""
    if layout.column is not None and count > PLACES_MAX:
        raise LoadError(
            f"column {layout.column} of {topic} has more than {PLACES_MAX:,} values in one commit; partition by a "
            "column with fewer values"
        )


def hours_of(stamps: Any) -> Any:
    """Convert an array of timestamps to hours since 1970; NO_HOUR for a missing or invalid timestamp."""
    import numpy as np

    values = stamps.cast("int64").fill_null(NO_HOUR).to_numpy()
    hours = np.floor_divide(values, HOUR_US)
    return np.where((hours < HOUR_MIN) | (hours > HOUR_MAX), NO_HOUR, hours)


def date_and_hour(hour: int) -> tuple[str | None, int | None]:
    """Convert hours since 1970 to a date (YYYY-MM-DD) and an hour of the day. NO_HOUR becomes (None, None)."""
    if hour == NO_HOUR:
        return None, None
    when = EPOCH + dt.timedelta(hours=hour)
    return when.date().isoformat(), when.hour


def place_of(layout: Layout, place: Place) -> tuple[str | None, int | None, str | None]:
    """Return the date, hour and folder of a place, as in a DataFile. LoadError if the folder's name is too long."""
    if layout.column is None:
        assert isinstance(place, int), "a place in time"
        date, hour = date_and_hour(place)
        return (date, hour, None) if layout.by == HOUR else (date, None, f"date={date or NO_PLACE}")
    assert not isinstance(place, int), "a value"
    folder = f"{layout.column}={NO_PLACE if place is None else encoded(place)}"
    size = len(folder.encode())
    if size > FOLDER_SIZE_MAX:
        raise LoadError(
            f"a value of column {layout.column} needs a folder name of {size} bytes (at most {FOLDER_SIZE_MAX}); "
            "partition by a column with shorter values"
        )
    return None, None, folder


def encoded(value: str) -> str:
    """Percent-encode a value for a path, as Hive does."""
    return SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", value)


def folder_of(topic: str, date: str | None, hour: int | None) -> str:
    """Return the folder of a topic's hour, relative to the directory of the load."""
    return f"topic={topic}/date={date or NO_PLACE}/hour={NO_PLACE if hour is None else f'{hour:02d}'}"


def file_columns(columns: Columns, layout: Layout | None) -> Columns:
    """Return the columns that are inside files, without the column in the paths."""
    column = None if layout is None else layout.column
    return tuple(each for each in columns if each.name != column)


# --- flattened values -------------------------------------------------------------------------------------------------


def flattened(batch: Any, columns: Columns, separator: str) -> tuple[Any, Columns]:
    """Replace the column of decoded values by a column for each of its fields. Return the batch and its columns.

    A field of a nested struct is named like user.name or user_name. If this name is reserved (TAKEN), the column is
    named decoded.NAME or decoded_NAME. Lists and maps are not flattened. LoadError if two fields get the same name.
    """
    import pyarrow as pa

    arrays, names = [], []
    made: list[Column] = []
    for number, column in enumerate(columns):
        if column.name != DECODED or not isinstance(column.type, Struct):
            arrays.append(batch.column(number))
            names.append(column.name)
            made.append(column)
            continue
        for leaf, path, array in _leaves(column.type, batch.column(number), ((),)):
            name = _named(path[0], separator)
            aliases = dict.fromkeys(_named(other, separator) for other in path[1:])
            arrays.append(array)
            names.append(name)
            made.append(Column(name, leaf, tuple(alias for alias in aliases if alias != name)))
    lowered = [name.lower() for name in names]
    twice = [name for name in names if lowered.count(name.lower()) > 1]
    if twice:
        raise LoadError(f"two fields of the values would be column {twice[0]}; flatten with another separator")
    return pa.RecordBatch.from_arrays(arrays, names=names), tuple(made)


def _leaves(
    kind: Struct, array: Any, above: tuple[tuple[str, ...], ...]
) -> Iterator[tuple[Any, tuple[tuple[str, ...], ...], Any]]:
    """Yield the type, paths and array of each field that is not a struct.

    The first path is the current one. The others contain older names of fields.
    """
    children = array.flatten()
    for number, field in enumerate(kind.fields):
        paths = tuple((*path, name) for path, name in itertools.product(above, (field.name, *field.aliases)))
        if isinstance(field.type, Struct):
            yield from _leaves(field.type, children[number], paths)
        else:
            yield field.type, paths, children[number]


def _named(path: tuple[str, ...], separator: str) -> str:
    name = separator.join(path)
    return f"{DECODED}{separator}{name}" if name.lower() in TAKEN else name


def layouts_from_json(value: Mapping[str, Mapping[str, str]]) -> dict[str, Layout]:
    """Parse the layouts of topics from a manifest."""
    return {topic: Layout(**row) for topic, row in value.items()}
