"""Rows of the broker's settings table: bounds of connections, of requests and of fetch sessions."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalite.settings.rows import INT, INT32_MAX, KIB, LONG, MIB, MINUTE_MS, STRING, setting
from kafkalite.settings.topic_rows import VALIDATIONS


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ConnectionRows:
    """What connections, requests and fetch sessions may take."""

    __slots__ = ()

    # Connections
    max_connections: int = setting(
        INT, 20_000, "Open connections; further ones are closed at once.", low=0, high=INT32_MAX, dynamic=True
    )
    max_connections_per_ip: int = setting(
        INT, INT32_MAX, "Open connections from one address; further ones are closed at once.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        STRING, "", "Exceptions to max.connections.per.ip: `address:count`, comma between two.", dynamic=True
    )
    connections_max_idle_ms: int = setting(
        LONG, 10 * MINUTE_MS, "A connection that says nothing for so long is closed; -1 never.", unit="ms", low=-1
    )
    socket_request_max_bytes: int = setting(
        INT, 100 * MIB, "The longest request; a longer one closes its connection.", unit="bytes", low=1
    )
    socket_send_buffer_bytes: int = setting(
        INT, -1, "SO_SNDBUF of a connection; -1 leaves it to the system.", unit="bytes", low=-1
    )
    socket_receive_buffer_bytes: int = setting(
        INT, -1, "SO_RCVBUF of a connection; -1 leaves it to the system.", unit="bytes", low=-1
    )
    socket_listen_backlog_size: int = setting(INT, 512, "Connections that may wait to be accepted.", low=1)
    connection_max_in_flight_requests: int = setting(
        INT,
        1024,
        "Requests of one connection whose answers wait; above it the connection is not read from.",
        low=1,
    )
    connection_output_buffer_max_bytes: int = setting(
        INT,
        16 * MIB,
        "Answers of one connection kept in memory; above it the connection is not read from. Log bytes sent straight"
        " from the file do not count.",
        unit="bytes",
        low=64 * KIB,
    )

    # Requests
    request_max_partitions: int = setting(
        INT,
        100_000,
        "Partitions named in one request, over all its topics; more closes the connection.",
        low=1,
    )
    decompressed_batch_max_bytes: int = setting(
        INT,
        128 * MIB,
        "What a compressed batch may unpack to; more is refused with INVALID_RECORD.",
        unit="bytes",
        low=MIB,
    )
    message_max_bytes: int = setting(
        INT, MIB + 12, "The largest batch; larger is refused with MESSAGE_TOO_LARGE.", unit="bytes", low=0, dynamic=True
    )
    fetch_max_bytes: int = setting(
        INT, 55 * MIB, "The largest fetch answer, one oversized first batch apart.", unit="bytes", low=1024
    )
    fetch_copy_max_bytes: int = setting(
        INT,
        32 * KIB,
        "Record bytes that a fetch answer copies to leave in one send; larger ones go straight from the file.",
        unit="bytes",
        low=0,
    )
    record_validation: str = setting(
        STRING,
        "full",
        "`full` checks each record of a batch, unpacking it, as Kafka does; `header` trusts what is inside a batch"
        " whose checksum and header are right, unless the topic needs the records looked at.",
        choices=VALIDATIONS,
        dynamic=True,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        INT, 1000, "Fetch sessions kept (KIP-227); clients that find no room fetch everything each time.", low=0
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        INT,
        2 * MINUTE_MS,
        "A fetch session idle for so long gives way to a new one, and one so old to a larger one.",
        unit="ms",
        low=0,
    )
    fetch_session_cache_max_partitions: int = setting(
        INT, 100_000, "Partitions kept in all fetch sessions together, about 200 bytes each.", low=0
    )
