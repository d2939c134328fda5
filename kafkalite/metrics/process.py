"""Provide metrics of this process: CPU time, memory and descriptors; for a broker, also its identity and disk I/O.

The metrics `process_…` have the names of Prometheus's client libraries. Their values come from the kernel.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kafkalite.base.metric_families import Family, labels
from kafkalite.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


PROC: Final = Path("/proc/self")
_STARTED_AT: Final = 19
"""Index of the start time, in clock ticks since boot, after the name in /proc/self/stat."""


class _Config(Protocol):
    @property
    def node_id(self) -> int: ...


class _Logs(Protocol):
    @property
    def cluster_id(self) -> str: ...


class BrokerParts(Protocol):
    """The parts of a broker that its process metrics need."""

    @property
    def config(self) -> _Config: ...

    @property
    def logs(self) -> _Logs | None: ...


class Process:
    """A source of process metrics. With `parts`, it also provides the broker's identity and disk I/O."""

    def __init__(self, parts: BrokerParts | None = None) -> None:
        self._parts = parts
        ticks = os.sysconf("SC_CLK_TCK")
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        fields = (PROC / "stat").read_text().rpartition(")")[2].split()
        self._started = int(boot.split()[1]) + int(fields[_STARTED_AT]) / ticks

    def __call__(self) -> Iterator[Family]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int((PROC / "statm").read_text().split()[1])
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        seconds = used.ru_utime + used.ru_stime
        yield Family("process_cpu_seconds", "counter", "CPU time used by the process.", [("", seconds)])
        for name, value, text in (
            ("resident_memory_bytes", pages * resource.getpagesize(), "Resident memory of the process."),
            ("open_fds", len(os.listdir(PROC / "fd")), "Open descriptors."),
            ("max_fds", soft if soft >= 0 else float("inf"), "Open file limit of the process."),
            ("start_time_seconds", self._started, "Start time of the process, in seconds since 1970."),
        ):
            yield Family(f"process_{name}", "gauge", text, [("", value)])
        if self._parts is not None and self._parts.logs is not None:
            node, cluster = self._parts.config.node_id, self._parts.logs.cluster_id
            yield Family(
                "kafka_broker_info",
                "gauge",
                "Always 1; the labels identify the broker.",
                [(labels(id=node, cluster=cluster, version=VERSION), 1)],
            )
            for name, value in _disk_bytes():
                text = f"Bytes that the process made the disk {name}, without the page cache."
                yield Family(f"kafka_server_kafkaserver_linux_disk_{name}_bytes", "gauge", text, [("", value)])


def _disk_bytes() -> Iterator[tuple[str, int]]:
    """Yield ("read" or "write", bytes) of this process, as Kafka's LinuxIoMetricsCollector does.

    Yields nothing if the kernel denies access.
    """
    try:
        lines = (PROC / "io").read_text().splitlines()
    except OSError:
        return
    counts = dict(line.split(": ") for line in lines)
    for name in ("read", "write"):
        yield name, int(counts[f"{name}_bytes"])
