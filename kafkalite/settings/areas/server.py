"""Rows of the broker's settings table: who it is, what it binds, where its data lives, its threads."""

from __future__ import annotations

import os

from kafkalite.base.available_memory import SMALLEST, default_ceiling
from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LIST, LONG, MIB, NONE, STRING, setting


def _network_threads() -> int:
    """As many as the cores this process may use, which in a container are fewer than the machine has."""
    return min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ServerRows:
    """Who the broker is, where it listens and keeps its data, how many threads it has."""

    __slots__ = ()

    # Who and where
    node_id: int = setting(
        INT, 1, "This broker's id, told to clients and kept in meta.properties.", low=0, aliases=("broker.id",)
    )
    broker_rack: str | None = setting(STRING, None, "The rack told to clients.")
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
        LIST, (), "Listeners of these names are Kafka's controllers' own: not bound here, so that its file can be used."
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
        "The data directory; exactly one, owned by one process at a time.",
        aliases=("log.dir",),
        default_text="$XDG_DATA_HOME/kafkalite, else ~/.local/share/kafkalite",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        LIST,
        (),
        "The data directory, or `*`, to give this broker no new partitions (KIP-1066). Takes effect from"
        " metadata.version 4.3-IV0 on.",
        dynamic=True,
    )
    max_partitions: int = setting(
        INT,
        100_000,
        "The most partitions this broker holds; creating more is refused with POLICY_VIOLATION. The last tenth is for"
        " clients (principal and address) that created at most 100.",
        low=1,
    )
    log_open_files_max: int = setting(
        INT,
        4096,
        "Segments kept open (descriptor and map) at once, never more than half of the process's descriptors; those"
        " used longest ago are closed first.",
        low=8,
    )

    # Threads and queues
    num_network_threads: int = setting(
        INT,
        _network_threads,
        "Threads that read, serve and answer requests. Fewer while it runs: those that end close their connections.",
        low=1,
        dynamic=True,
        default_text="min(4, cores)",
    )
    num_io_threads: int = setting(
        INT,
        4,
        "Threads for work that waits for the disk or walks logs: create, delete, roll, decompress.",
        low=1,
        dynamic=True,
    )
    background_threads: int = setting(
        INT,
        10,
        "Kafka's threads for work in the background; num.io.threads does it here.",
        low=1,
        dynamic=True,
        effect=NONE,
    )
    queued_max_requests: int = setting(
        INT,
        500,
        "Kafka's bound on requests that wait for a thread. Here connection.max.in.flight.requests, max.connections and"
        " queued.append.max.bytes bound them.",
        low=1,
        effect=NONE,
    )
    broker_memory_max: int = setting(
        LONG,
        default_ceiling,
        "What clients may make the broker hold in memory, in all: requests, parked fetches, answers, group metadata and"
        " sessions. Near it the broker stops reading from the clients (principal and address) that hold most.",
        unit="bytes",
        low=SMALLEST,
        default_text="the smaller of 512 MiB and a quarter of RAM or of the cgroup limit",
    )
    queued_max_request_bytes: int = setting(
        LONG,
        -1,
        "Bytes of requests that are received, wait or run; above it no new request is read. -1: broker.memory.max alone"
        " bounds them.",
        unit="bytes",
        low=-1,
    )
    queued_append_max_bytes: int = setting(
        LONG,
        256 * MIB,
        "Produced batches that wait for num.io.threads (a roll, a new file, unpacking), in all; above it producers are"
        " asked to try again.",
        unit="bytes",
        low=MIB,
    )
    num_recovery_threads_per_data_dir: int = setting(
        INT, 2, "Threads that check logs after an unclean stop, at the next start.", low=1, dynamic=True
    )
