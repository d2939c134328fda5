"""A terminal that commands of this process write to, and what it would obey."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafkalite.cli import main
from kafkalite.cli.output import CLEAR_LINE, CLEAR_SCREEN

OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffd]"
)
"""Control characters but LF and TAB, and what changes the direction of a line; U+FFFD is a byte that was no UTF-8."""
HOSTILE: Final = "\x1b]0;owned\x07\x9b31m\u202e\u2066\u200f\u061c\u2028\x7f\r\nFORGED"
"""A name that retitles the terminal, colours and turns the text round, and forges a line that begins with FORGED."""


class Screen:
    """A command's output to a terminal."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text.replace(CLEAR_LINE, "").replace(CLEAR_SCREEN, "")

    @property
    def obeyed(self) -> list[str]:
        """Return each escape sequence that the terminal would obey, with the text around it."""
        found = [self.text[max(0, one.start() - 30) : one.end() + 10] for one in OBEYED.finditer(self.text)]
        return found + [line for line in self.text.split("\n") if line.startswith("FORGED")]


def on_terminal(*arguments: str) -> Screen:
    """Runs a command whose stdout and stderr are one terminal."""
    with a_terminal() as pieces:
        status = main(list(arguments))
    return Screen(status, b"".join(pieces).decode(errors="replace"))


@contextmanager
def a_terminal() -> Iterator[list[bytes]]:
    """Both standard streams are a terminal meanwhile; the pieces that came out are complete at the end."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # no \r before each \n
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:  # EIO: closed on the other side
            pass

    reader = threading.Thread(target=read)
    reader.start()
    streams = sys.stdout, sys.stderr
    for stream in streams:
        stream.flush()
    kept = os.dup(1), os.dup(2)
    os.dup2(theirs, 1)
    os.dup2(theirs, 2)
    os.close(theirs)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # until the end of this
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        yield pieces
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
        reader.join()
        os.close(ours)
