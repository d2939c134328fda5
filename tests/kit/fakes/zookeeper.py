"""ZooKeeper in memory, and what kafkalite calls of kazoo's client: nodes, sessions, watches, and planned failures.

`fail_at(n)` makes the n-th operation from now on fail with ConnectionLoss, after it was done (the answer got lost) or
instead of doing it. `expire` ends a session as the server does: its nodes go, watches fire, the client gets a new one.

Thread rule: any thread; watches are called by the thread whose operation fired them, with no lock held.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType

Watch = Callable[[object], None]


class Result:
    """What kazoo's `_async` methods return, done already."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self._value = value
        self._error = error

    def get(self, timeout: float | None = None) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class FakeServer:
    """The nodes: path → (value, session that made it if it is ephemeral)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.deleted: list[str] = []
        self._sessions = 0
        self._child_watches: dict[str, list[Watch]] = defaultdict(list)
        self._node_watches: dict[str, list[Watch]] = defaultdict(list)

    def client(self) -> FakeClient:
        return FakeClient(self)

    def new_session(self) -> int:
        with self.lock:
            self._sessions += 1
            return self._sessions

    def below(self, path: str) -> dict[str, str]:
        """Names and values of a node's children."""
        with self.lock:
            found = {
                name[len(path) + 1 :]: value for name, (value, _) in self.nodes.items() if name.startswith(f"{path}/")
            }
        return {name: value.decode() for name, value in found.items() if "/" not in name}

    def put(self, path: str, value: bytes, session: int = 0) -> list[Watch]:
        """Makes a node with its parents; the watches to call."""
        fired = []
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            fired += self.put(parent, b"")
        self.nodes[path] = (value, session)
        return fired + self._child_watches.pop(parent, []) + self._node_watches.pop(path, [])

    def remove(self, path: str) -> list[Watch]:
        del self.nodes[path]
        self.deleted.append(path)
        return self._child_watches.pop(path.rpartition("/")[0], []) + self._child_watches.pop(path, [])

    def end_session(self, session: int) -> list[Watch]:
        gone = [path for path, (_, owner) in self.nodes.items() if owner == session]
        return [watch for path in gone for watch in self.remove(path)]

    def watch_children(self, path: str, watch: Watch) -> None:
        self._child_watches[path].append(watch)

    def watch_node(self, path: str, watch: Watch) -> None:
        self._node_watches[path].append(watch)

    def expire(self, client: FakeClient) -> None:
        with self.lock:
            fired = self.end_session(client.client_id[0])
            client.client_id = (self.new_session(), b"")
        client.tell(KazooState.LOST)
        client.tell(KazooState.CONNECTED)
        call(fired)


def call(watches: list[Watch], kind: str = EventType.CHILD) -> None:
    for watch in watches:
        watch(SimpleNamespace(type=kind))


class FakeClient:
    """One session."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.client_id = (server.new_session(), b"")
        self.operation_count = 0
        self.before: Callable[[str, str], None] = lambda _operation, _path: None
        self._fail_at: int | None = None
        self._fail_done = False
        self._listeners: list[Callable[[str], None]] = []
        self._watches: list[Watch] = []

    def fail_at(self, number: int, *, done: bool) -> None:
        self._fail_at, self._fail_done = self.operation_count + number, done

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def lose_connection(self) -> None:
        """What kazoo does first: every watch is called with an event that says nothing, and forgotten."""
        watches, self._watches = self._watches, []
        call(watches, EventType.NONE)
        self.tell(KazooState.SUSPENDED)

    def stop(self) -> None:
        with self.server.lock:
            fired = self.server.end_session(self.client_id[0])
        call(fired)

    def close(self) -> None:
        """Nothing is open."""

    def get_async(self, path: str) -> Result:
        def read() -> tuple[Any, list[Watch]]:
            value, owner = self.server.nodes[path]
            return (value, SimpleNamespace(ephemeralOwner=owner)), []

        return self._do("get", path, read)

    def get_children_async(self, path: str, watch: Watch | None = None) -> Result:
        def read() -> tuple[Any, list[Watch]]:
            if path not in self.server.nodes:
                raise KeyError(path)
            if watch is not None:
                self._watches.append(watch)
                self.server.watch_children(path, watch)
            return list(self.server.below(path)), []

        return self._do("children", path, read)

    def exists_async(self, path: str, watch: Watch | None = None) -> Result:
        def read() -> tuple[Any, list[Watch]]:
            if watch is not None:
                self._watches.append(watch)
                self.server.watch_node(path, watch)
            return self.server.nodes.get(path), []

        return self._do("exists", path, read)

    def create_async(self, path: str, value: bytes = b"", *, ephemeral: bool = False, makepath: bool = False) -> Result:
        def make() -> tuple[Any, list[Watch]]:
            if path in self.server.nodes:
                raise NodeExistsError
            return path, self.server.put(path, value, self.client_id[0] if ephemeral else 0)

        return self._do("create", path, make)

    def set_async(self, path: str, value: bytes) -> Result:
        def write() -> tuple[Any, list[Watch]]:
            self.server.nodes[path] = (value, self.server.nodes[path][1])
            return None, []

        return self._do("set", path, write)

    def delete_async(self, path: str) -> Result:
        def remove() -> tuple[Any, list[Watch]]:
            return None, self.server.remove(path)

        return self._do("delete", path, remove)

    def _do(self, operation: str, path: str, run: Callable[[], tuple[Any, list[Watch]]]) -> Result:
        self.before(operation, path)
        self.operation_count += 1
        failing = self.operation_count == self._fail_at
        if failing and not self._fail_done:
            return Result(error=ConnectionLoss())
        try:
            with self.server.lock:
                value, fired = run()
        except KeyError:
            return Result(error=NoNodeError())
        except NodeExistsError as error:
            return Result(error=error)
        call(fired)
        return Result(error=ConnectionLoss()) if failing else Result(value)
