"""How the broker's log looks: one line an event, for people or as JSON, never more than a bounded number of lines.

    2026-11-21T09:50:00.123Z INFO  kafkalite.log.manager topic created topic=orders partitions=3
    {"time": "2026-11-21T09:50:00.123Z", "level": "INFO", "logger": "kafkalite.log.manager", "message": ..., ...}

Rooms log through the standard library (`logging.getLogger(__name__)`) and hand over structure with `fields`. A library
must not configure logging: only the command line calls `configure`; embedded, the application decides. Any thread may
log. `RepeatFilter` keeps a hostile client from filling the disk with the line that its mistake earns, and whatever a
client chose goes through `escaped`: here, and where it becomes a label of a metric.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "kafkalite"
LINES_PER_SECOND_MAX: Final = 50
"""Lines of one message text let through each second; the rest are counted and the count is told."""
TEXTS_MAX: Final = 1024
"""Message texts that RepeatFilter keeps count of."""
MESSAGE_SIZE_MAX: Final = 4096
VALUE_SIZE_MAX: Final = 1024
"""Characters of a message and of a field's value; what is longer is cut."""


def escaped(text: str, size_max: int | None = None) -> str:
    """Text that a client may have chosen, fit for a line: without a line break, a control character or another that
    does not print, which might forge a second line or speak to a terminal; cut to `size_max` characters."""
    cut = text if size_max is None or len(text) <= size_max else text[:size_max] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)


def fields(**values: object) -> Mapping[str, Any]:
    """Structure for a log line: `logger.info("topic created", extra=fields(topic=name))`."""
    return {"fields": values}


class TextFormatter(logging.Formatter):
    """A line for people: time in UTC, level, logger, message, `key=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it when there is one."""
        message = escaped(record.getMessage(), MESSAGE_SIZE_MAX)
        parts = [_time_text(record), f"{record.levelname:<7}", record.name, message]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields_of(record).items()]
        line = " ".join(parts)
        if not record.exc_info:
            return line
        # An error's text may be a client's: each of its lines stands further in than any line of the log.
        traceback = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {escaped(part, MESSAGE_SIZE_MAX)}" for part in traceback)])


class JsonFormatter(logging.Formatter):
    """A line for machines: one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, with the traceback as `error` when there is one."""
        line: dict[str, object] = {
            "time": _time_text(record),
            "level": record.levelname,
            "logger": record.name,
            "message": escaped(record.getMessage(), MESSAGE_SIZE_MAX),
            **{key: _cut(value) for key, value in _fields_of(record).items()},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")  # the one control character that JSON leaves


class RepeatFilter(logging.Filter):
    """Lets LINES_PER_SECOND_MAX lines of one text through each second, and tells how many it held back.

    Owned by its handler, whose lock is not held while filtering: the counts may be off by a few under contention, which
    is all right for a count of dropped lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, object], tuple[int, int]] = {}  # (logger, text) -> (second, lines in it)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        key = (record.name, record.msg)
        second = int(record.created)
        last_second, count = self._counts.get(key, (second, 0))
        if last_second != second:
            if count > LINES_PER_SECOND_MAX:
                record.msg = f"{record.msg} ({count - LINES_PER_SECOND_MAX} more lines like this were held back)"
            count = 0
        if len(self._counts) >= TEXTS_MAX and key not in self._counts:
            self._counts.clear()
        self._counts[key] = (second, count + 1)
        return count < LINES_PER_SECOND_MAX


def configure(*, level: str = "INFO", json_lines: bool = False, stream: TextIO | None = None) -> None:
    """Sends this package's log to `stream` (stderr by default); a second call replaces the first."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else TextFormatter())
    handler.addFilter(RepeatFilter())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _time_text(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(record, "fields", {})
    return found


def _cut(value: object) -> object:
    return escaped(value, VALUE_SIZE_MAX) if isinstance(value, str) else value


def _quoted(value: object) -> str:
    text = escaped(str(value), VALUE_SIZE_MAX)
    return text if text and not set(' "=') & set(text) else json.dumps(text, ensure_ascii=False)
