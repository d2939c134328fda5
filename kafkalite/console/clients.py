"""Provide a pool of clients for requests and jobs: each has a cluster client and, if configured, a registry client.

Clients are created on demand, at most one for each web worker and each running job.

Thread rule: any thread may take a client. The client belongs to this thread until the thread returns it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.documents import Documents
    from kafkalite.client import Client


class PooledClients:
    """A cluster client, with an Avro decoder. The decoder is None without a registry."""

    def __init__(self, client: Client, registry: RegistryClient | None) -> None:
        self.client = client
        self.registry = registry
        self.documents: Documents | None = None
        if registry is not None:
            from kafkalite.avro.documents import Documents

            self.documents = Documents(registry)

    def close(self) -> None:
        """Close the connections. Both clients connect again when they are used."""
        self.client.close()
        if self.registry is not None:
            self.registry.close()


class Clients:
    """The pool of clients. They get the settings of the client `first`."""

    def __init__(self, first: Client, open_registry: Callable[[], RegistryClient] | None = None) -> None:
        self._first = first
        self._open_registry = open_registry
        self._idle: list[PooledClients] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[PooledClients]:
        """Lend a client to a request or job during a `with` block. If the block fails, close its connections."""
        with self._lock:
            seat = self._idle.pop() if self._idle else None
        if seat is None:
            seat = PooledClients(self._first.twin(), None if self._open_registry is None else self._open_registry())
        try:
            yield seat
        except BaseException:
            seat.close()
            raise
        finally:
            with self._lock:
                if not self._closed:
                    self._idle.append(seat)
                else:
                    seat.close()

    def close(self) -> None:
        """Close the idle clients now, and the others when they are returned."""
        with self._lock:
            self._closed = True
            for seat in self._idle:
                seat.close()
            self._idle.clear()
        self._first.close()
