"""Run load programs and measure what the machine spends on them.

A driver prints one line of JSON (`drivers/README.md`). `Meter` adds what the driver cannot know: CPU seconds and
storage writes of the server's processes, and the loopback traffic, including headers and TCP acknowledgements. If the
server still works when the driver has ended, the meter waits and counts this too.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.head_to_head import drivers
from benchmarks.path.harness import cpu_seconds

Row = dict[str, Any]
SETTLE_TIMEOUT_S = 5.0
SETTLE_WINDOW_S = 0.1
SETTLED_SHARE = 0.1
"""Of one core: what an idle JVM or Erlang may take."""
PROGRESS_POINTS_MAX = 50
HISTOGRAM_BUCKETS_MAX = 80
PERCENTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


class DriverFailed(RuntimeError):
    """A driver failed or timed out. The text is one sentence."""


@cache
def first_driver(names: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the name and command of the first driver that is available. Raises drivers.Missing with all reasons."""
    reasons = []
    for name in names:
        if name not in drivers.DRIVERS:
            reasons.append(f"unknown driver {name}")
            continue
        try:
            return name, tuple(drivers.command(name))
        except drivers.Missing as error:
            reasons.append(f"{name}: {error}")
    raise drivers.Missing("; ".join(reasons))


def call(commands: Sequence[Sequence[object]], timeout_s: float) -> list[Row]:
    """Run several drivers at once; return their rows in this order. All have ended when this returns."""
    processes = [
        subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    deadline = time.monotonic() + timeout_s
    try:
        return [_row_of(process, command, deadline) for process, command in zip(processes, commands, strict=True)]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _row_of(process: subprocess.Popen[str], command: Sequence[object], deadline: float) -> Row:
    name = Path(str(command[0])).name
    try:
        out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise DriverFailed(f"{name} did not finish within {error.timeout:.0f} s") from error
    if process.returncode:
        raise DriverFailed(f"{name} exited with status {process.returncode}: {' '.join(err.split())[-500:]}")
    try:
        row: Row = json.loads(out.splitlines()[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise DriverFailed(f"{name} did not print its result as JSON") from error
    return row


class Meter:
    """Measures the server's processes and the loopback interface between `begin` and `end`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids

    def begin(self) -> None:
        self._cpu_s, self._written, self._wire = self._cpu(), self._writes(), loopback_bytes()

    def end(self) -> Row:
        """Return server_cpu_s, write_bytes and wire_bytes; nothing for a remote system."""
        wire = loopback_bytes() - self._wire
        if not self._pids:
            return {}
        self._settle()
        return {
            "server_cpu_s": self._cpu() - self._cpu_s,
            "write_bytes": self._writes() - self._written,
            "wire_bytes": wire,
            "rss_bytes": memory(self._pids),
        }

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        before = self._cpu()
        while time.monotonic() < deadline:
            time.sleep(SETTLE_WINDOW_S)
            now = self._cpu()
            if now - before < SETTLED_SHARE * SETTLE_WINDOW_S:
                return
            before = now

    def _cpu(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._pids)

    def _writes(self) -> int:
        return sum(written_bytes(pid) for pid in self._pids)


def written_bytes(pid: int) -> int:
    """Return the bytes that a process caused to be written to storage, counted when pages are dirtied (proc(5),
    `write_bytes`)."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


def memory(pids: Sequence[int]) -> int:
    """Return the resident bytes of these processes."""
    found = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += sum(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))
    return found


def loopback_bytes() -> int:
    """Return the bytes that the loopback interface has received."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return 0


def throughput(rows: Sequence[Row]) -> Row:
    """Combine the rows of drivers that ran at once: their total, over the longest of their times."""
    messages, seconds = sum(row["messages"] for row in rows), max(row["seconds"] for row in rows)
    return {
        "client": rows[0].get("client", ""),
        "messages": messages,
        "bytes": sum(row["bytes"] for row in rows),
        "seconds": seconds,
        "rate_per_s": messages / seconds,
        "client_cpu_s": sum(row["cpu_s"] for row in rows),
        "progress": _thinned(rows[0].get("progress", [])) if len(rows) == 1 else [],
    }


def latency(row: Row) -> Row:
    """Return percentiles of a driver's histogram, and the histogram with fewer buckets."""
    histogram = [(float(bound), int(count)) for bound, count in row["histogram_us"] if count]
    found = {name: percentile(histogram, share) for name, share in PERCENTILES.items()}
    return {
        **throughput([row]),
        **found,
        "max_us": histogram[-1][0] if histogram else 0.0,
        "sent_late": row.get("sent_late", 0),
        "histogram_us": _coarse(histogram),
    }


def percentile(histogram: Sequence[tuple[float, int]], share: float) -> float:
    """Return the upper bound of the bucket that reaches this fraction of all counts. Bounds must be rising."""
    wanted, seen = share * sum(count for _, count in histogram), 0
    for bound, count in histogram:
        seen += count
        if seen >= wanted:
            return bound
    return 0.0


def _coarse(histogram: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Join neighboring buckets until only a few are left."""
    step = -(-len(histogram) // HISTOGRAM_BUCKETS_MAX) or 1
    groups = [histogram[start : start + step] for start in range(0, len(histogram), step)]
    return [(group[-1][0], sum(count for _, count in group)) for group in groups]


def _thinned(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Keep every n-th point and the last, so that only a few are left."""
    step = -(-len(points) // PROGRESS_POINTS_MAX) or 1
    kept = [*points[::step], *([points[-1]] if points and (len(points) - 1) % step else [])]
    return [[round(elapsed_s, 5), int(count)] for elapsed_s, count in kept]
