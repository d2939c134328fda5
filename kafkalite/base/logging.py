"""Format the broker's log, as text or JSON, and limit the number of lines.

    2026-11-21T09:50:00.123Z INFO  kafkalite.broker.log.manager topic created topic=orders partitions=3
    {"time": "2026-11-21T09:50:00.123Z", "level": "INFO", "logger": "kafkalite.broker.log.manager", "message": ..., ...}

Modules log through the standard library (`logging.getLogger(__name__)`), and pass structured values with `fields`. Each
event is one line; in text, a traceback follows it in indented lines. Texts that clients choose, such as topic names,
are `escaped`. Events that clients can cause repeatedly go through a `RepeatLogger`.

Thread rule: any thread may log.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TextIO

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

ROOT: Final = "kafkalite"
LINES_PER_SECOND_MAX: Final = 50
"""Lines with the same message that are written each second; the rest are counted, and the count is logged."""
TEXTS_MAX: Final = 1024
"""Messages that RepeatFilter counts."""
REPEAT_INTERVAL_S: Final = 60.0
"""The interval in which a RepeatLogger writes its allowed number of lines of each kind."""
EVENT_LINES: Final = 10
"""Lines per interval for events that clients cause in normal operation: a topic is created, a group rebalances."""
KINDS_MAX: Final = 1024
"""Kinds of lines that each RepeatLogger counts separately; further kinds share one count."""
MESSAGE_SIZE_MAX: Final = 4096
VALUE_SIZE_MAX: Final = 1024
"""Characters of a message and of a field's value; longer ones are cut."""


def escaped(text: str, size_max: int | None = None) -> str:
    """Escape and shorten a text that a client may have chosen, for log lines and terminals.

    Line breaks and other unprintable characters are escaped, because they could forge a log line or control a terminal.
    A text with more than `size_max` characters is cut before it is escaped.
    """
    cut = text if size_max is None or len(text) <= size_max else text[:size_max] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)


def fields(**values: object) -> Mapping[str, Any]:
    """Return structured values for a log line: `logger.info("topic created", extra=fields(topic=name))`."""
    return {"fields": values}


class TextFormatter(logging.Formatter):
    """A formatter for lines of text: time in UTC, level, logger, message, `key=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        message = escaped(record.getMessage(), MESSAGE_SIZE_MAX)
        parts = [_time_text(record), f"{record.levelname:<7}", record.name, message]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields_of(record).items()]
        line = " ".join(parts)
        if not record.exc_info:
            return line
        # An error's text may come from a client, so each of its lines is indented.
        traceback = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {escaped(part, MESSAGE_SIZE_MAX)}" for part in traceback)])


class JsonFormatter(logging.Formatter):
    """A formatter for lines of JSON, one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object. A traceback becomes its field `error`."""
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
    """A logging filter that passes at most LINES_PER_SECOND_MAX lines per second with the same message.

    It reports the number of suppressed lines. `logging` calls it without a lock, so the counts may be off by a few.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, object], tuple[int, int]] = {}  # (logger, text) -> (second, lines in it)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this line."""
        key = (record.name, record.msg)
        second = int(record.created)
        last_second, count = self._counts.get(key, (second, 0))
        if last_second != second:
            if count > LINES_PER_SECOND_MAX:
                record.msg = f"{record.msg} ({count - LINES_PER_SECOND_MAX} similar lines suppressed)"
            count = 0
        if len(self._counts) >= TEXTS_MAX and key not in self._counts:
            self._counts.clear()
        self._counts[key] = (second, count + 1)
        return count < LINES_PER_SECOND_MAX


class _Repeats:
    """The state of one kind of line: the start of its current interval, and the lines written and suppressed in it."""

    __slots__ = ("held", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = self.held = 0


class _Kinds:
    """The kinds of lines of one logger."""

    __slots__ = ("_of", "_swept_at")

    def __init__(self) -> None:
        self._of: dict[Hashable, _Repeats] = {}
        self._swept_at = 0.0

    def get(self, kind: Hashable, now: float) -> _Repeats:
        """Return the state of a kind. If there are already KINDS_MAX kinds, all new kinds share one state."""
        repeats = self._of.get(kind)
        if repeats is not None:
            return repeats
        if len(self._of) >= KINDS_MAX and now - self._swept_at >= REPEAT_INTERVAL_S:
            self._swept_at = now
            self._of = {kind: one for kind, one in self._of.items() if now - one.since < REPEAT_INTERVAL_S}
        if len(self._of) >= KINDS_MAX:
            kind = None
        return self._of.setdefault(kind, _Repeats(now))


_repeats: dict[str, _Kinds] = {}
"""Logger name → its kinds."""
_repeats_lock = threading.Lock()


def forget_repeats() -> None:
    """Reset the counts of all RepeatLoggers.

    A broker calls this when it starts, because several brokers may run one after another in one process.
    """
    with _repeats_lock:
        _repeats.clear()


class RepeatLogger:
    """A logger that limits lines that clients can cause repeatedly, such as one line per request.

    Lines with the same message template are of one kind. In each interval of REPEAT_INTERVAL_S, at most `lines` lines
    of a kind are written. The first line of the next interval includes the number of suppressed lines.

    Logging never raises MemoryError: without memory for a line, the line is lost.
    """

    __slots__ = ("_lines", "_logger")

    def __init__(self, logger: logging.Logger, lines: int = 1) -> None:
        self._logger = logger
        self._lines = lines

    def debug(self, message: str, *values: object, **options: Any) -> None:
        """Log a line at level DEBUG, with the options of `info`."""
        self._log(logging.DEBUG, message, values, options)

    def info(self, message: str, *values: object, **options: Any) -> None:
        """Log a line at level INFO.

        The options are `extra`, as in any logger, and `kind`. Lines with the same `kind` count as one kind, even if
        their messages differ.
        """
        self._log(logging.INFO, message, values, options)

    def warning(self, message: str, *values: object, **options: Any) -> None:
        """Log a line at level WARNING, with the options of `info`."""
        self._log(logging.WARNING, message, values, options)

    def error(self, message: str, *values: object, **options: Any) -> None:
        """Log a line at level ERROR, with the options of `info`."""
        self._log(logging.ERROR, message, values, options)

    def exception(self, message: str, *values: object, **options: Any) -> None:
        """Log a line at level ERROR with the current traceback, with the options of `info`."""
        self._log(logging.ERROR, message, values, {"exc_info": True, **options})

    def _log(self, level: int, message: str, values: tuple[object, ...], options: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        try:
            kind = options.pop("kind", message)
            held = self._held_before(kind)
            if held is None:
                return
            if held:
                message, values = f"{message} (%d similar lines suppressed)", (*values, held)
            self._logger.log(level, message, *values, stacklevel=3, **options)
        except MemoryError:
            return

    def _held_before(self, kind: Hashable) -> int | None:
        """Count a line of this kind. Return the number of lines suppressed before it; None to suppress this line."""
        now = time.monotonic()
        with _repeats_lock:
            repeats = _repeats.setdefault(self._logger.name, _Kinds()).get(kind, now)
            held = repeats.held
            if now - repeats.since >= REPEAT_INTERVAL_S:
                repeats.since, repeats.written, repeats.held = now, 0, 0
            elif repeats.written >= self._lines:
                repeats.held += 1
                return None
            repeats.written += 1
        return held


def configure(*, level: str = "INFO", json_lines: bool = False, stream: TextIO | None = None) -> None:
    """Write this package's log to `stream` (default: stderr). Another call replaces the configuration.

    For programs of kafkalite, such as its commands. An application that uses kafkalite as a library configures logging
    itself.
    """
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
