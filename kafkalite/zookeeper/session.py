"""A ZooKeeper session and the few ways in which 0.7 reads and writes nodes, over kazoo.

Reads of a node that is not there give None or nothing; parents come into being with their first child. An ephemeral
node that another session made is never taken for ours: it will vanish with that session, whatever its value.

Every function may wait for the server, for OPERATION_TIMEOUT_S at most, and raises kazoo's errors (`ZooKeeperError`)
when the connection or the session is lost or stays away for so long. Thread rule: a client may be used from any thread
but kazoo's own (its callbacks).
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
_kazoo_logger.setLevel(logging.ERROR)  # each attempt to connect is a warning there; what matters is logged here

ZooKeeperError = (KazooException, KazooTimeoutError)
"""What a lost connection or session raises, and whatever else the server refuses."""
CONNECTION_GONE: Final = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
"""Those of them that another try may not meet."""

OPERATION_TIMEOUT_S: Final = 10.0
"""kazoo keeps what is asked while the connection is away; nobody here waits longer than this for it."""
RETRY_DELAY_S: Final = 0.1
RETRY_DELAY_S_MAX: Final = 2.0


class NodeConflict(Exception):
    """An ephemeral node of this path was made by another session."""

    def __init__(self, path: str, value: bytes) -> None:
        super().__init__(f"another session holds {path}: {value.decode('utf-8', 'replace')}")
        self.path = path
        self.value = value


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's, which a forked child leaves to its parent."""

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.origin = forks.Origin()
        forks.register(self)

    def leave(self) -> None:
        """In a forked child: the session is the parent's."""
        sockets = (getattr(self._connection, name) for name in ("_socket", "_read_sock", "_write_sock"))
        forks.abandon(each.fileno() for each in sockets if each is not None)


def new_client(servers: str, session_timeout_s: float) -> KazooClient:
    """One that is not connected yet; StartupError for addresses that are none."""
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
    """A client with a session; StartupError when nobody answers within connection_timeout_s seconds.

    `servers` is `host:port,host:port/chroot`; the chroot is made when it is missing, unless nothing is to be written.
    Once connected, it reconnects for ever by itself, with a new session when the old one expired.
    """
    client = new_client(servers, session_timeout_s)
    try:
        client.start_async().wait(connection_timeout_s)  # start() warns of a chroot that is yet to be made
        if client.connected:
            if not reads_only and client.chroot and client.exists_async("/").get(timeout=OPERATION_TIMEOUT_S) is None:
                _make_chroot(servers, connection_timeout_s)
            return client
    except ZooKeeperError as error:
        logger.info("lost the ZooKeeper connection right after connecting: %s", error or type(error).__name__)
    close(client)
    raise StartupError(f"no ZooKeeper server at {servers} answered within {connection_timeout_s:g} s")


def _make_chroot(servers: str, connection_timeout_s: float) -> None:
    """Makes the path that `servers` ends in, which a client that lives below it cannot."""
    hosts, _, path = servers.partition("/")
    client = _Client(hosts=hosts, logger=_kazoo_logger)
    try:
        client.start(timeout=connection_timeout_s)
        client.ensure_path(f"/{path}")
    finally:
        close(client)


def close(client: KazooClient) -> None:
    """Ends the session, and with it every ephemeral node it made. Does not raise; nothing is done in a forked child."""
    if isinstance(client, _Client) and not client.origin.is_here:
        return
    try:
        client.stop()
        client.close()
    except ZooKeeperError as error:
        logger.info("closing the ZooKeeper session failed: %s", error)


def read(client: KazooClient, path: str) -> bytes | None:
    """A node's value, None without the node."""
    try:
        value, _ = client.get_async(path).get(timeout=OPERATION_TIMEOUT_S)
    except NoNodeError:
        return None
    return bytes(value or b"")


def children(client: KazooClient, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
    """Names of the nodes below a path, none without it. The watch is called once, when they may have changed.

    On a path that is missing the watch waits for the node to come.
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
    """Whether a watch was called for what it watches: kazoo calls each when the connection goes, too."""
    return bool(getattr(event, "type", None) != EventType.NONE)


def write(client: KazooClient, path: str, value: bytes) -> None:
    """Sets a persistent node, made with its parents where it is missing."""
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
    """Removes a node; one that is gone already is fine."""
    with contextlib.suppress(NoNodeError):
        client.delete_async(path).get(timeout=OPERATION_TIMEOUT_S)


def delete_tree(client: KazooClient, path: str) -> None:
    """Removes a node and everything below it; one that is gone already is fine."""
    for name in children(client, path):
        delete_tree(client, f"{path}/{name}")
    delete(client, path)


def create_ephemeral(client: KazooClient, path: str, value: bytes) -> None:
    """Makes a node that lives as long as this session; NodeConflict when another session has it.

    One that this session made itself (a create whose answer was lost) counts as done, and gets the value.
    """
    while True:
        try:
            client.create_async(path, value, ephemeral=True, makepath=True).get(timeout=OPERATION_TIMEOUT_S)
        except NodeExistsError:
            try:
                found, stat = client.get_async(path).get(timeout=OPERATION_TIMEOUT_S)
            except NoNodeError:
                continue  # gone meanwhile
            if stat.ephemeralOwner != session_id(client):
                raise NodeConflict(path, bytes(found or b"")) from None
            if found != value:
                _set(client, path, value)
        return


def session_id(client: KazooClient) -> int:
    """The number of the session, as nodes name their owner."""
    return int(client.client_id[0])
