"""Define the broker's settings for its identity, listeners, data directory and threads."""

from __future__ import annotations

import os

from kafkalite.base.available_memory import SMALLEST, default_ceiling
from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LIST, LONG, MIB, NONE, STRING, setting


def _network_threads() -> int:
    """Return the number of CPU cores that this process may use, but at most 4.

    In a container, this can be less than the machine has.
    """
    return min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ServerRows:
    """Settings of the broker's identity, listeners, data directory and threads."""

    __slots__ = ()

    # Who and where
    node_id: int = setting(INT, 1, "This broker's id. It is stored in meta.properties.", low=0, aliases=("broker.id",))
    broker_rack: str | None = setting(STRING, None, "This broker's rack, which clients can see.")
    listeners: str = setting(
        STRING,
        "kafka://127.0.0.1:9092",
        "Comma-separated addresses to bind: `kafka://host:port`, or Kafka's forms"
        " `PLAINTEXT://host:port`, `SSL://host:port` for TLS, `SASL_SSL` and `SASL_PLAINTEXT` for"
        " authentication. An empty host binds every interface; port 0 selects a free port."
        " `kafka07://host:port` serves Kafka 0.7 clients. Named listeners"
        " (listener.security.protocol.map) allow several of one kind.",
    )
    advertised_listeners: str | None = setting(
        STRING,
        None,
        "Addresses that clients connect to, by listener, if they differ from `listeners` (containers,"
        " NAT). Unset: the bound address, or the machine's host name if the listener binds every"
        " interface. Port 0: the bound port.",
    )
    listener_security_protocol_map: str = setting(
        STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,KAFKA:PLAINTEXT",
        "Listener name to protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        LIST,
        (),
        (
            "Names of listeners that belong to Kafka's controllers. This broker does not bind them, so that it "
            "can use a file shared with Kafka."
        ),
    )
    zookeeper_connect: str | None = setting(
        STRING,
        None,
        "ZooKeeper addresses, `host:port,host:port/path`: a broker with a kafka07:// listener registers"
        " itself and its classic topics there, as Kafka 0.7 does. Unset: no registration.",
    )

    # Where data lives
    log_dirs: tuple[str, ...] = setting(
        LIST,
        (),
        "Data directory; exactly one, used by one process at a time.",
        aliases=("log.dir",),
        default_text="$XDG_DATA_HOME/kafkalite, else ~/.local/share/kafkalite",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        LIST,
        (),
        "The data directory, or `*`, to place no new partitions on this broker (KIP-1066). Requires "
        "metadata.version 4.3-IV0.",
        dynamic=True,
    )
    max_partitions: int = setting(
        INT,
        100_000,
        "Maximum number of partitions on this broker; creating more is rejected with POLICY_VIOLATION. The last "
        "tenth is reserved for clients (principal and address) that created at most 100.",
        low=1,
    )
    log_open_files_max: int = setting(
        INT,
        4096,
        "Maximum number of open segments (file descriptor and memory map), but never more than half of the "
        "process's file descriptors. The least recently used are closed first.",
        low=8,
    )

    # Threads and queues
    num_network_threads: int = setting(
        INT,
        _network_threads,
        "Threads that read, process and answer requests. Reducing the number on a running broker closes the "
        "connections of the threads that end.",
        low=1,
        dynamic=True,
        default_text="min(4, cores)",
    )
    num_io_threads: int = setting(
        INT,
        4,
        "Threads for work that waits for the disk or scans logs: create, delete, roll, decompress.",
        low=1,
        dynamic=True,
    )
    background_threads: int = setting(
        INT,
        10,
        "Kafka's number of threads for background work. Here, the threads of num.io.threads do this work.",
        low=1,
        dynamic=True,
        effect=NONE,
    )
    queued_max_requests: int = setting(
        INT,
        500,
        "Kafka's limit for requests that wait for a thread. Here, connection.max.in.flight.requests, "
        "max.connections and queued.append.max.bytes limit them.",
        low=1,
        effect=NONE,
    )
    broker_memory_max: int = setting(
        LONG,
        default_ceiling,
        "Maximum memory for all clients together: requests, waiting fetches, responses, group metadata and "
        "sessions. Near the limit, the broker stops reading from the clients (principal and address) that use "
        "most.",
        unit="bytes",
        low=SMALLEST,
        default_text="the smaller of 512 MiB and a quarter of RAM or of the cgroup limit",
    )
    queued_max_request_bytes: int = setting(
        LONG,
        -1,
        "Maximum size of all requests that are being received, waiting or running; above it, the broker reads no new "
        "request. -1: only broker.memory.max limits them.",
        unit="bytes",
        low=-1,
    )
    queued_append_max_bytes: int = setting(
        LONG,
        256 * MIB,
        "Maximum size of all produced batches that wait for num.io.threads (to roll, open a file or decompress); "
        "above it, producers get a retriable error.",
        unit="bytes",
        low=MIB,
    )
    num_recovery_threads_per_data_dir: int = setting(
        INT, 2, "Threads that recover logs at a start after an unclean shutdown.", low=1, dynamic=True
    )
