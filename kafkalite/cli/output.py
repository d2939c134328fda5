"""Write a command's output to stdout and stderr, and escape characters that a terminal would interpret.

    say, print_table, print_json   output for people and programs, on stdout
    note, overwrite                messages and progress, on stderr
    redraw                         a whole screen
    write_text                     text of several lines, laid out by this program: help, scripts, a stack trace
    write_value, data_stream       contents of records: unchanged to a file or pipe, escaped on a terminal
    write_data                     bytes of records, which the caller has escaped if stdout is a terminal
    Guard                          wraps the streams, for other writers: tracebacks, warnings, libraries

Clients choose group ids, client ids, principals, keys and error texts. These may contain control characters (ESC, BEL,
C1) or change the direction of a line. Such characters are escaped before they reach a terminal.

No other module prints or writes to a standard stream; `tests/unit/cli/test_output.py` checks this.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Buffer

STDOUT: Final = 1
CLEAR_LINE: Final = "\r\x1b[K"
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
LAYOUT: Final = "\n\t"
SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
JOINERS: Final = "\u200c\u200d"
KEPT_IN_TEXT: Final = frozenset(LAYOUT + SPACES + JOINERS)
"""Characters that are not printable but stay in text of several lines: they only move the next character."""


def escaped(text: str) -> str:
    """Escape text for use within a line: unprintable characters, line ends and tabs become Python escapes (`\\x1b`)."""
    if text.isprintable():
        return text
    from kafkalite.base.logging import escaped as escaped_for_a_line

    return escaped_for_a_line(text)


def cut(text: str, size_max: int) -> str:
    """Escape a name, and shorten it to `size_max` characters for a column."""
    shown = escaped(text)
    return shown if len(shown) <= size_max else f"{shown[: size_max - 1]}…"


def escaped_lines(text: str) -> str:
    """Escape what a terminal would interpret, in text of several lines."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(char if char in KEPT_IN_TEXT else escaped(char) for char in text)


def escaped_bytes(raw: bytes) -> str:
    """Return a record's bytes for a terminal: UTF-8 as `escaped_lines` returns it, other bytes as `\\xHH`."""
    return escaped_lines(raw.decode(errors="backslashreplace"))


def json_text(value: object, default: Callable[[Any], object] | None = None) -> str:
    """Return JSON on one line. Unprintable characters are \\u escapes, which every parser reads alike."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)
    return text if text.isprintable() else "".join(map(_json_character, text))


def _json_character(char: str) -> str:
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x80 else json.dumps(char)[1:-1]


class Guard:
    """A text stream that escapes what is written to it (`escaped_lines`), and otherwise behaves like the wrapped
    stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: Final = stream

    def write(self, text: str) -> int:
        self.stream.write(escaped_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard_streams() -> None:
    """Wrap stdout and stderr in a Guard until the process ends, since Python writes a traceback after `main`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Guard):
            setattr(sys, name, Guard(stream))


def say(text: str = "", *, flush: bool = False) -> None:
    """Print one line on stdout."""
    print(escaped(text), flush=flush)


def note(text: str) -> None:
    """Print one line on stderr and flush it."""
    print(escaped(text), file=sys.stderr, flush=True)


def write_text(text: str) -> None:
    """Print lines on stdout that the caller has laid out."""
    print(escaped_lines(text), end="")


def print_json(value: object, default: Callable[[Any], object] | None = None) -> None:
    """Print a JSON document on one line."""
    print(json_text(value, default))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print left-aligned columns under their titles."""
    lines = [[escaped(str(cell)) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def overwrite(text: str, *, last: bool = False) -> None:
    """Write a line on stderr over the previous line. `last` ends the line. If stderr is a file, each line is kept."""
    terminal = sys.stderr.isatty()
    end = "\n" if last or not terminal else ""
    _bare(sys.stderr).write(f"{CLEAR_LINE if terminal else ''}{escaped(text)}{end}")
    sys.stderr.flush()


def redraw(lines: Iterable[str], *, clear: bool) -> None:
    """Write lines on stdout. With `clear`, they replace the contents of the terminal."""
    _bare(sys.stdout).write((CLEAR_SCREEN if clear else "") + "".join(f"{escaped(line)}\n" for line in lines))
    sys.stdout.flush()


def on_terminal() -> bool:
    """Return whether record data must be escaped, because stdout is a terminal."""
    return sys.stdout.isatty()


def value_stream() -> TextIO:
    """Return stdout, for writing the text of records and the characters between them."""
    return sys.stdout if on_terminal() else _bare(sys.stdout)


def write_value(text: str, *, flush: bool = False) -> None:
    """Print the text of a record on stdout."""
    print(text, file=value_stream(), end="", flush=flush)


def write_data(data: Buffer) -> None:
    """Write all bytes to stdout unchanged. For a terminal, the caller must have escaped them."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:
        left = left[os.write(STDOUT, left) :]


def data_stream() -> BinaryIO:
    """Return stdout, for writing the bytes of records."""
    return cast("BinaryIO", _TerminalBytes() if on_terminal() else sys.stdout.buffer)


class _TerminalBytes:
    """Writes bytes to a terminal, escaped by `escaped_bytes`."""

    def write(self, raw: bytes) -> int:
        sys.stdout.write(escaped_bytes(raw))
        return len(raw)

    def flush(self) -> None:
        sys.stdout.flush()


def _bare(stream: TextIO) -> TextIO:
    return stream.stream if isinstance(stream, Guard) else stream
