"""Parse the option values of Kafka 0.7's tools, and open their ZooKeeper sessions."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.classic.config import CODECS
from kafkalite.cli import UsageError
from kafkalite.zookeeper import session as zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

SESSION_TIMEOUT_S: Final = 30.0
CONNECTION_TIMEOUT_S: Final = 10.0
ZOOKEEPER_DEFAULT: Final = "127.0.0.1:2181"

_SERVER: Final = re.compile(r"(?:kafka|tcp)://([^:/\s]+):(\d+)/?")


class Server(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int


def server(text: str) -> Server:
    """Parse `kafka://host:port`."""
    found = _SERVER.fullmatch(text)
    if found is None:
        raise UsageError(f"invalid server {text!r}; expected kafka://host:port")
    return Server(found[1], int(found[2]))


def broker_info(text: str) -> dict[str, str]:
    """Parse `broker.list=...` or `zk.connect=...`, an argument of the performance tools and of the replay tool."""
    key, separator, value = text.partition("=")
    if not separator or key not in {"broker.list", "zk.connect"}:
        raise UsageError(f"invalid --brokerinfo {text!r}; expected broker.list=id:host:port or zk.connect=host:port")
    return {key: value}


def codec(text: str) -> int:
    """Parse the number of a compression codec (0, 1 or 2), for argparse."""
    import argparse

    if text not in set(map(str, CODECS)):
        raise argparse.ArgumentTypeError(f"unknown codec {text!r}; expected 0 (none), 1 (gzip) or 2 (snappy)")
    return int(text)


@contextlib.contextmanager
def session(servers: str) -> Iterator[KazooClient]:
    """Open a ZooKeeper session for the duration of a `with` block."""
    client = zookeeper.connect(servers, session_timeout_s=SESSION_TIMEOUT_S, connection_timeout_s=CONNECTION_TIMEOUT_S)
    try:
        yield client
    finally:
        zookeeper.close(client)
