"""Open ZooKeeper sessions with kazoo, and read and write nodes as Kafka 0.7 does.

A function that reads or writes nodes waits for the server, at most OPERATION_TIMEOUT_S seconds for each operation. It
raises one of kazoo's errors (`ZooKeeperError`) after this time, or if the connection or session is lost.

Thread rule: any thread may use a client, except kazoo's own thread, which runs callbacks.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient
from kazoo.client import KazooState as SessionState
from kazoo.exceptions import ConnectionLoss, KazooException, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType
from kazoo.retry import KazooRetry

from kafkalite.base import forks
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CONNECTION_GONE",
    "NodeConflict",
    "SessionState",
    "ZooKeeperError",
    "children",
    "close",
    "connect",
    "create_ephemeral",
    "delete",
    "delete_tree",
    "new_client",
    "read",
    "session_id",
    "tells_change",
    "write",
]

logger = logging.getLogger(__name__)

_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)  # kazoo warns about each connection attempt; important events are logged here

ZooKeeperError = (KazooException, KazooTimeoutError)
"""Errors for a lost connection or session, and for other failures of the server."""
CONNECTION_GONE: Final = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
"""Those of them that a retry may avoid."""

OPERATION_TIMEOUT_S: Final = 10.0
"""kazoo queues operations while it is disconnected; callers wait at most this long."""
RETRY_DELAY_S: Final = 0.1
RETRY_DELAY_S_MAX: Final = 2.0


class NodeConflict(Exception):
    """An ephemeral node that another session has already created."""

    def __init__(self, path: str, value: bytes) -> None:
        super().__init__(f"another session holds {path}: {value.decode('utf-8', 'replace')}")
        self.path = path
        self.value = value


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """A kazoo client that does nothing in a forked child, because the session belongs to the parent."""

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.origin = forks.Origin()
        forks.register(self)

    def leave(self) -> None:
        """Give up the sockets in a forked child, because the session belongs to the parent."""
        sockets = (getattr(self._connection, name) for name in ("_socket", "_read_sock", "_write_sock"))
        forks.abandon(each.fileno() for each in sockets if each is not None)


def new_client(servers: str, session_timeout_s: float) -> KazooClient:
    """Return a client that is not connected yet. StartupError for invalid addresses."""
    retry = KazooRetry(max_tries=-1, delay=RETRY_DELAY_S, max_delay=RETRY_DELAY_S_MAX, ignore_expire=True)
    try:
        return _Client(hosts=servers, timeout=session_timeout_s, connection_retry=retry, logger=_kazoo_logger)
    except ValueError as error:
        raise StartupError(
            f"zookeeper.connect={servers} is not of the form host:port,host:port/path: {error}"
        ) from error


def connect(
    servers: str, *, session_timeout_s: float, connection_timeout_s: float, reads_only: bool = False
) -> KazooClient:
    """Return a client with a session. StartupError if no server responds within `connection_timeout_s` seconds.

    `servers` is `host:port,host:port/chroot`. A missing chroot is created, unless `reads_only` is set. The client
    reconnects indefinitely. If its session has expired, it gets a new one.
    """
    client = new_client(servers, session_timeout_s)
    try:
        client.start_async().wait(connection_timeout_s)  # start() would warn about a chroot that does not exist yet
        if client.connected:
            if not reads_only and client.chroot and client.exists_async("/").get(timeout=OPERATION_TIMEOUT_S) is None:
                _make_chroot(servers, connection_timeout_s)
            return client
    except ZooKeeperError as error:
        logger.info("lost the ZooKeeper connection right after connecting: %s", error or type(error).__name__)
    close(client)
    raise StartupError(f"no ZooKeeper server at {servers} answered within {connection_timeout_s:g} s")


def _make_chroot(servers: str, connection_timeout_s: float) -> None:
    """Create the chroot of `servers`, with a separate client. A client that uses the chroot cannot create it."""
    hosts, _, path = servers.partition("/")
    client = _Client(hosts=hosts, logger=_kazoo_logger)
    try:
        client.start(timeout=connection_timeout_s)
        client.ensure_path(f"/{path}")
    finally:
        close(client)


def close(client: KazooClient) -> None:
    """End the session, which deletes its ephemeral nodes. Errors are only logged. Does nothing in a forked child."""
    if isinstance(client, _Client) and not client.origin.is_here:
        return
    try:
        client.stop()
        client.close()
    except ZooKeeperError as error:
        logger.info("closing the ZooKeeper session failed: %s", error)


def read(client: KazooClient, path: str) -> bytes | None:
    """Return the value of a node; None if it does not exist."""
    try:
        value, _ = client.get_async(path).get(timeout=OPERATION_TIMEOUT_S)
    except NoNodeError:
        return None
    return bytes(value or b"")


def children(client: KazooClient, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
    """Return the names of a node's children; [] if the node does not exist.

    `watch` is called once, when the children may have changed or the missing node is created.
    """
    try:
        return _children(client, path, watch)
    except NoNodeError:
        if watch is None or client.exists_async(path, watch=watch).get(timeout=OPERATION_TIMEOUT_S) is None:
            return []
        return _children(client, path, watch)


def _children(client: KazooClient, path: str, watch: Callable[[object], None] | None) -> list[str]:
    return sorted(client.get_children_async(path, watch=watch).get(timeout=OPERATION_TIMEOUT_S))


def tells_change(event: object) -> bool:
    """Return whether a watch's event reports a change. kazoo also calls watches when the connection is lost."""
    return bool(getattr(event, "type", None) != EventType.NONE)


def write(client: KazooClient, path: str, value: bytes) -> None:
    """Set the value of a persistent node. The node and its parents are created if they do not exist."""
    try:
        _set(client, path, value)
    except NoNodeError:
        try:
            client.create_async(path, value, makepath=True).get(timeout=OPERATION_TIMEOUT_S)
        except NodeExistsError:
            _set(client, path, value)


def _set(client: KazooClient, path: str, value: bytes) -> None:
    client.set_async(path, value).get(timeout=OPERATION_TIMEOUT_S)


def delete(client: KazooClient, path: str) -> None:
    """Delete a node, if it exists."""
    with contextlib.suppress(NoNodeError):
        client.delete_async(path).get(timeout=OPERATION_TIMEOUT_S)


def delete_tree(client: KazooClient, path: str) -> None:
    """Delete a node and all nodes below it, if it exists."""
    for name in children(client, path):
        delete_tree(client, f"{path}/{name}")
    delete(client, path)


def create_ephemeral(client: KazooClient, path: str, value: bytes) -> None:
    """Create an ephemeral node of this session. NodeConflict if another session has created it.

    Even an equal value is a conflict, because the node vanishes with the other session. If this session has already
    created the node, only the value is set. This happens if the response to the creation was lost.
    """
    while True:
        try:
            client.create_async(path, value, ephemeral=True, makepath=True).get(timeout=OPERATION_TIMEOUT_S)
        except NodeExistsError:
            try:
                found, stat = client.get_async(path).get(timeout=OPERATION_TIMEOUT_S)
            except NoNodeError:
                continue  # deleted meanwhile
            if stat.ephemeralOwner != session_id(client):
                raise NodeConflict(path, bytes(found or b"")) from None
            if found != value:
                _set(client, path, value)
        return


def session_id(client: KazooClient) -> int:
    """Return the id of the session, which ZooKeeper stores as the owner of its ephemeral nodes."""
    return int(client.client_id[0])
