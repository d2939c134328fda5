"""Let one thread at a time use a GroupReader, and wake that thread if another thread closes the reader.

    entered    lets one thread in, which may enter again from a callback; another thread gets RuntimeError
    shut       wakes the thread inside, and waits until it has left, at most `timeout_s`

Thread rule: any thread. The lock `_changed` guards the state; no callback runs while a thread holds it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from kafkalite.base import forks
from kafkalite.base.wakeup import Wakeup
from kafkalite.client.errors import ForeignProcess, ReaderClosed

if TYPE_CHECKING:
    from collections.abc import Iterator


class OneThread:
    """The guard of one reader; see the module. `name` is the reader's name in errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._origin = forks.Origin()
        self._changed = threading.Condition()
        self._inside: int | None = None
        self._depth = 0
        self._shutting = False
        self._shut = False
        self.bell = Wakeup()
        """Wakes a thread that waits inside."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the reader; the same thread may enter again.

        Raises RuntimeError if another thread is inside, ReaderClosed after `shut`, and ForeignProcess in a forked
        child, which does not have the membership thread.
        """
        if not self._origin.is_here:
            raise ForeignProcess(self._origin.refusal("reader"))
        me = threading.get_ident()
        with self._changed:
            if self._inside not in {None, me}:
                raise RuntimeError("another thread is using this GroupReader; use it in one thread at a time")
            if self._shut or (self._shutting and self._inside is None):
                raise self._closed()
            self._enter(me)
        try:
            yield
        finally:
            with self._changed:
                self._leave()

    @contextlib.contextmanager
    def shut(self, timeout_s: float) -> Iterator[bool]:
        """Let no thread enter any more. Yield whether the caller has to close the reader.

        The first caller gets True after the thread inside has left. Later callers get False after the first caller has
        finished. Each wait ends after `timeout_s`.
        """
        me = threading.get_ident()
        with self._changed:
            first, self._shutting = not self._shutting, True
            self.bell.ring()
            self._changed.wait_for(lambda: self._inside in {None, me} and (first or self._shut), timeout_s)
            if first:
                self._enter(me)
        try:
            yield first
        finally:
            if first:
                with self._changed:
                    self._shut = True
                    self._leave()
                self.bell.close()

    def go_on(self) -> None:
        """Clear the wake-up signal. Raises ReaderClosed if the signal was sent to close the reader."""
        self.bell.hush()
        if self._shutting:
            raise self._closed()

    def _enter(self, me: int) -> None:
        self._inside = me
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._inside = None
        self._changed.notify_all()

    def _closed(self) -> ReaderClosed:
        return ReaderClosed(f"{self._name} is closed")
