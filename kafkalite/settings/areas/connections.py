"""Define the broker's settings that limit connections, requests and fetch sessions.

    max.connections=…                           limits all connections together
    listener.name.outside.max.connections=…     also limits the connections of the listener OUTSIDE

The setting max.connection.creation.rate has both forms, too. Both settings can be changed while the broker runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import (
    INT,
    INT32_MAX,
    KIB,
    LONG,
    MIB,
    MINUTE_MS,
    STRING,
    Setting,
    collect,
    parse_all,
    setting,
)
from kafkalite.settings.topic_settings_table import VALIDATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_LISTENERS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""The limits that can be set for one listener."""
_LISTENER_KEY: Final = re.compile(r"listener\.name\.(?P<name>[^.]+)\.(?P<key>max\.connection.+)")


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ConnectionRows:
    """Settings that limit connections, requests and fetch sessions."""

    __slots__ = ()

    # Connections
    max_connections: int = setting(
        INT,
        20_000,
        "Maximum number of open connections; further ones are closed at once. The last tenth is reserved for "
        "addresses with at most 100.",
        low=0,
        high=INT32_MAX,
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        INT,
        INT32_MAX,
        "Maximum number of open connections from one address; further ones are closed at once.",
        low=0,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        STRING, "", "Exceptions to max.connections.per.ip: comma-separated `address:count`.", dynamic=True
    )
    max_connection_creation_rate: int = setting(
        INT,
        INT32_MAX,
        "Maximum number of connections accepted per second; further ones wait in the operating system's queue.",
        unit="1/s",
        low=1,
        dynamic=True,
    )
    connections_max_idle_ms: int = setting(
        LONG, 10 * MINUTE_MS, "Close a connection that is idle for this long; -1: never.", unit="ms", low=-1
    )
    socket_request_max_bytes: int = setting(
        INT, 100 * MIB, "Maximum size of a request; a larger one closes its connection.", unit="bytes", low=1
    )
    socket_send_buffer_bytes: int = setting(
        INT, -1, "Socket send buffer (SO_SNDBUF); -1: the operating system's default.", unit="bytes", low=-1
    )
    socket_receive_buffer_bytes: int = setting(
        INT, -1, "Socket receive buffer (SO_RCVBUF); -1: the operating system's default.", unit="bytes", low=-1
    )
    socket_listen_backlog_size: int = setting(
        INT, 512, "Maximum number of connections that wait to be accepted.", low=1
    )
    connection_max_in_flight_requests: int = setting(
        INT,
        1024,
        "Maximum number of unanswered requests per connection. At this limit, the broker stops reading from the "
        "connection.",
        low=1,
    )
    connection_output_buffer_max_bytes: int = setting(
        INT,
        16 * MIB,
        "Maximum size of a connection's responses in memory; above it, the broker stops reading from the "
        "connection. Log bytes sent straight from the file do not count.",
        unit="bytes",
        low=64 * KIB,
    )

    # Requests
    request_max_partitions: int = setting(
        INT,
        100_000,
        "Maximum number of partitions in one request, over all topics; a request with more closes its connection.",
        low=1,
    )
    decompressed_batch_max_bytes: int = setting(
        INT,
        128 * MIB,
        "Maximum uncompressed size of a batch; a larger one is rejected with INVALID_RECORD. The broker "
        "decompresses at most two batches of more than 4 MiB at a time.",
        unit="bytes",
        low=MIB,
    )
    message_max_bytes: int = setting(
        INT,
        MIB + 12,
        "Maximum size of a batch; a larger one is rejected with MESSAGE_TOO_LARGE.",
        unit="bytes",
        low=0,
        dynamic=True,
    )
    fetch_max_bytes: int = setting(
        INT,
        55 * MIB,
        "Maximum size of a fetch response, except for a first batch that is larger.",
        unit="bytes",
        low=1024,
    )
    fetch_copy_max_bytes: int = setting(
        INT,
        32 * KIB,
        "Maximum number of record bytes that a fetch response copies to send it in one piece; more are sent "
        "straight from the file.",
        unit="bytes",
        low=0,
    )
    record_validation: str = setting(
        STRING,
        "full",
        "How records of a batch are validated: `full` decompresses the batch and checks each record, as Kafka "
        "does; `header` checks only the batch's checksum and header, unless the topic's settings require the "
        "records.",
        choices=VALIDATIONS,
        dynamic=True,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        INT,
        1000,
        "Maximum number of incremental fetch sessions (KIP-227). A client without a session sends all its "
        "partitions in each fetch. The last tenth is reserved for clients (principal and address) with at most "
        "100.",
        low=0,
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        INT,
        2 * MINUTE_MS,
        "Idle time after which a fetch session can be evicted for a new one, and age after which it can be "
        "evicted for a larger one.",
        unit="ms",
        low=0,
    )
    fetch_session_cache_max_partitions: int = setting(
        INT,
        100_000,
        "Maximum number of partitions in all fetch sessions together, about 200 bytes each. The last tenth is "
        "reserved for clients (principal and address) with at most 100.",
        low=0,
    )


_ROWS: Final[dict[str, Setting]] = collect(ConnectionRows)


def listener_key(full: str) -> tuple[str, str] | None:
    """Split a key `listener.name.<listener>.max.connection…` into (listener in lower case, key).

    None for other keys.
    """
    match = _LISTENER_KEY.fullmatch(full)
    return (match["name"].lower(), match["key"]) if match is not None and match["key"] in OF_LISTENERS else None


def row_of(full: str) -> Setting | None:
    """Return the definition of a listener's connection limit; None for other keys."""
    found = listener_key(full)
    return None if found is None else _ROWS[found[1]]


def limits_of_listeners(key: str, *texts: Mapping[str, str]) -> dict[str, int]:
    """Return the limit of each listener that sets `key`: listener in lower case → value. ConfigError.

    `key` is one of OF_LISTENERS. If several `texts` contain a limit, the last one counts.
    """
    limits: dict[str, int] = {}
    for full, text in (item for given in texts for item in given.items()):
        found = listener_key(full)
        if found is not None and found[1] == key:
            limits[found[0]] = int(str(parse_all({full: _ROWS[key]}, {full: text})[_ROWS[key].attribute]))
    return limits
