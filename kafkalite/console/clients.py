"""Clients that requests take turns with: as many as there are workers at most, made when they are needed.

Thread rule: any thread; a client that was taken belongs to its taker.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.client import Client


class Clients:
    """See the module. `first` gives the settings, and is the first that is handed out."""

    def __init__(self, first: Client) -> None:
        self._first = first
        self._idle = [first]
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[Client]:
        """One for the length of a request. After a failure its connections are dropped."""
        with self._lock:
            client = self._idle.pop() if self._idle else self._first.twin()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        finally:
            with self._lock:
                if not self._closed:
                    self._idle.append(client)
                else:
                    client.close()

    def close(self) -> None:
        """Those that are idle now, and the others when they come back."""
        with self._lock:
            self._closed = True
            for client in self._idle:
                client.close()
            self._idle.clear()
