"""Capture the log of brokers that have their own processes, for pytest's reports.

Each process writes stdout and stderr to an anonymous file. pytest's hooks read what was added since the last read, so
no reader thread is needed. Outside pytest nothing is captured, and a broker logs to this program's stderr.
"""

from __future__ import annotations

from typing import Final

from kafkalite.testing.unpatched import Unpatched

SIZE_MAX: Final = 64 << 10
"""Bytes of a broker's log in one section of a report; the newest."""

_level: str | None = None
_logs: list[CapturedLog] = []


class CapturedLog:
    """The log of one broker's process."""

    def __init__(self) -> None:
        self.descriptor = Unpatched.memory_file("kafkalite-log")
        self._seen = 0
        self._ended = False
        _logs.append(self)

    def end(self) -> None:
        """Note that the process has ended. The next `news` returns the remaining output and closes the file."""
        self._ended = True

    def news(self) -> str:
        """Return what the process wrote since the last call."""
        start, text = self._newest(self._seen)
        cut = f"[{start - self._seen} earlier bytes are omitted]\n" if start > self._seen else ""
        self._seen = start + len(text)
        if self._ended:
            _logs.remove(self)
            Unpatched.close(self.descriptor)
        return cut + text.decode(errors="replace")

    def tail(self) -> str:
        """Return the last line of the log, for the text of an error."""
        _, text = self._newest(0)
        return text.decode(errors="replace").strip().rpartition("\n")[2]

    def _newest(self, begin: int) -> tuple[int, bytes]:
        """Return (position, bytes): the last bytes of the file from `begin` on, at most SIZE_MAX of them."""
        size = Unpatched.file_status(self.descriptor).st_size
        start = max(begin, size - SIZE_MAX)
        return start, Unpatched.read_at(self.descriptor, size - start, start)


def capture(level: str) -> None:
    """Capture the log of every broker that is started from now on, with messages of this level and above."""
    global _level
    _level = level


def level_captured() -> str | None:
    """Return the level from which on messages are captured; None if none are captured."""
    return _level


def news() -> str:
    """Return what all brokers wrote since this was last called."""
    return "".join([log.news() for log in list(_logs)])
