"""Run one client program against several servers in turn, and write medians, CPU seconds and ratios as JSON.

    case ── repeat 1: server A, server B, …   (order turned by one each time, so that none is always first)
         ── repeat 2: server B, …, server A
         ── …  medians per server, ratios to the first server (the yardstick)

A server is a separate process with an empty data directory. CPU seconds of servers come from the kernel's process CPU
clock (nanoseconds; user and system split from /proc/PID/stat); those of clients come from the client. C programs are
compiled on demand into build/bench.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import BrokerProcess, usage_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
CLIENT_TIMEOUT_S = 300
C_FLAGS = ["-O3", "-march=x86-64-v2", "-Wall", "-Wextra"]
PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "null_broker": ("benchmarks/null_broker/null_broker.c", ["-lpthread"]),
    "rdk_bench": ("benchmarks/clients/rdk_bench.c", ["-lrdkafka"]),
    "raw_bench": ("benchmarks/clients/raw_bench.c", []),
}
Row = dict[str, Any]


@alone()
def program(name: str) -> Path:
    """Return the path of a C program, compiled again if a source is newer."""
    source, libraries = PROGRAMS[name]
    target = BUILD / name
    sources = [ROOT / source, ROOT / "benchmarks/null_broker/crc32c_sse42.h"]
    if not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", *C_FLAGS, "-o", str(target), str(ROOT / source), *libraries], check=True)
    return target


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of another process, from its CPU clock (clock id as in clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


@dataclass
class Server:
    """A server under test, started with an empty directory and measured by its process id."""

    name: str
    directory: Path
    port: int = 0

    @property
    def pid(self) -> int:
        raise LookupError("not started")

    def start(self) -> None:
        raise LookupError("abstract")

    def stop(self) -> None:
        raise LookupError("abstract")


@dataclass
class NullBroker(Server):
    """The C yardstick. `mode` is ack, crc or append."""

    mode: str = "append"
    thread_count: int = 1
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.directory.mkdir(parents=True)
        ready = self.directory / "ready"
        arguments = ["--mode", self.mode, "--threads", str(self.thread_count), "--data-dir", str(self.directory)]
        self.process = subprocess.Popen([program("null_broker"), *arguments, "--ready-file", str(ready)])
        deadline = time.monotonic() + 10
        while not ready.exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("the null broker did not start")
            time.sleep(0.005)
        self.port = int(ready.read_text().rsplit(":", 1)[1])

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass
class Kafkalite(Server):
    """This repository's broker, with its defaults except for `settings`."""

    settings: Mapping[str, str] = field(default_factory=dict)
    broker: BrokerProcess | None = None

    @property
    def pid(self) -> int:
        assert self.broker is not None
        return self.broker.pid

    def start(self) -> None:
        self.broker = BrokerProcess(self.directory, {"num.partitions": "8", **self.settings}).start()
        self.port = self.broker.port

    def stop(self) -> None:
        if self.broker is not None:
            self.broker.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def pin(pid: int, cores: set[int]) -> None:
    """Bind all threads of a process to these cores."""
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), cores)


def client(name: str, *arguments: object, cores: set[int] | None = None) -> Row:
    """Run a C client, on these cores if given; return its line of JSON."""
    command = [str(program(name)), *map(str, arguments)]
    if cores:
        command = ["taskset", "-c", ",".join(map(str, sorted(cores))), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with status {done.returncode}: {done.stderr[-2000:]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


@dataclass
class Case:
    """One case. `run(server, repeat)` does the work and returns a row with at least `rate_per_s`.

    `unit_count` of a row (messages, requests) turns the server's CPU seconds into seconds per million.
    """

    name: str
    run: Callable[[Server, int], Row]
    prepare: Callable[[Server, int], None] | None = None
    keys: Sequence[str] = (
        "rate_per_s",
        "server_cpu_s_per_million",
        "client_cpu_s",
        "p50_us",
        "p99_us",
        "p999_us",
        "mb_per_s",
    )


def measure(case: Case, servers: Sequence[Server], repeat_count: int) -> Row:
    """Run all repeats of a case on all servers, interleaved. The first server is the yardstick of the ratios."""
    rows: dict[str, list[Row]] = {server.name: [] for server in servers}
    for repeat in range(repeat_count):
        shift = repeat % len(servers)
        for server in [*servers[shift:], *servers[:shift]]:
            if case.prepare:
                case.prepare(server, repeat)
            before, usage = cpu_seconds(server.pid), usage_of(server.pid)
            row = case.run(server, repeat)
            row["server_cpu_s"] = cpu_seconds(server.pid) - before
            after = usage_of(server.pid)
            row["server_user_s"], row["server_system_s"] = after.user_s - usage.user_s, after.system_s - usage.system_s
            count = row.get("unit_count", row.get("count", 0))
            if count:
                row["server_cpu_s_per_million"] = row["server_cpu_s"] / count * 1e6
            rows[server.name].append(row)
            _say(f"{case.name:28} {server.name:18} " + _short(row, case.keys))
    medians = {name: _medians(found, case.keys) for name, found in rows.items()}
    yardstick = medians[servers[0].name]
    ratios = {
        server.name: {key: medians[server.name][key] / yardstick[key] for key in yardstick if yardstick[key]}
        for server in servers[1:]
    }
    for name, found in ratios.items():
        _say(f"{case.name:28} {name:18} ratio to {servers[0].name}: " + _short(found, case.keys))
    return {"case": case.name, "yardstick": servers[0].name, "medians": medians, "ratios": ratios, "rows": rows}


def run_suite(
    name: str, cases: Iterable[Case], make_servers: Callable[[Path], Sequence[Server]], repeat_count: int
) -> Path:
    """Run cases on servers that are started once, and write benchmarks/results/NAME.json."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-", dir=os.environ.get("KAFKALITE_BENCH_DIR")) as folder:
        servers = make_servers(Path(folder))
        found = []
        try:
            for server in servers:
                server.start()
            found = [measure(case, servers, repeat_count) for case in cases]
        finally:
            for server in servers:
                server.stop()
    return write_result(name, {"cases": found, "repeat_count": repeat_count})


def write_result(name: str, result: Row) -> Path:
    """Write benchmarks/results/NAME.json with machine, versions and commit."""
    directory = Path(os.environ.get("KAFKALITE_BENCH_RESULTS", RESULTS))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps({"name": name, "machine": machine(), **result}, indent=1, sort_keys=True) + "\n")
    _say(f"written: {path}")
    return path


def machine() -> Row:
    """Return the facts about the machine on which the figures depend."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    commit, dirty = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    return {
        "cpu": cpu,
        "core_count": os.cpu_count(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit + ("+changes" if dirty else ""),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": os.getloadavg()[0],
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _medians(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, float]:
    return {key: statistics.median(row[key] for row in rows) for key in keys if all(key in row for row in rows)}


def _short(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    return "  ".join(f"{key} {row[key]:,.3f}" for key in keys if key in row)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
