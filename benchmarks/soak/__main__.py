"""Find what grows with uptime: one broker and its console for an hour, under a varied load.

  python -m benchmarks.soak --folder DIR --minutes 60     continues after Ctrl-C
  make soak MINUTES=60

The broker is killed once, after --kill-after minutes; the rest is one life of one process. Every few seconds a sample
is written to DIR/samples.jsonl. It has the private memory, descriptors and threads of broker and console, the files and
bytes of the data directory, the size of the journal, and the latency of a single Produce (acks=all) and Metadata
request.

At the end, every acknowledged record and transaction is looked up. A table shows the growth of each figure per hour
with a 95 % interval (`slopes.py`), over the broker's longest life without its first quarter hour. The exit status is 1
if a record is missing, duplicated, or from an aborted transaction.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.path.harness import machine
from benchmarks.soak.slopes import Slope, slope
from benchmarks.soak.workload import PARTITIONS, RECORDS, TRANSACTIONS
from kafkalite.client import READ_COMMITTED, Client

SAMPLE_S: Final = 5.0
WARM_UP_S: Final = 900.0
"""Seconds of a life that no slope counts; a quarter of a life that is shorter than an hour."""
PROBE: Final = "soak.probe"
PROBE_PAUSE_S: Final = 0.05
MEBIBYTE: Final = 1024 * 1024
UNITS: Final = {
    "broker.private": ("MiB", MEBIBYTE),
    "console.private": ("MiB", MEBIBYTE),
    "journal": ("KiB", 1024),
    "disk": ("MiB", MEBIBYTE),
}
"""How figures are printed; others as they are."""


def private_size(pid: int) -> int:
    """Return the process's anonymous resident memory in bytes (RssAnon)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise ProcessLookupError(pid)


def figures_of(name: str, pid: int) -> dict[str, float]:
    """Return memory, descriptors and threads of a process."""
    return {
        f"{name}.private": private_size(pid),
        f"{name}.descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        f"{name}.threads": len(os.listdir(f"/proc/{pid}/task")),
    }


def figures_of_directory(path: Path) -> dict[str, float]:
    """Return the number of files and bytes of a data directory, and the size of its journal."""
    count = size = 0
    for place, _, names in os.walk(path):
        count += len(names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_blocks * 512
    return {"files": count, "disk": size, "journal": (path / "metadata.journal").stat().st_size}


class Probe:
    """An honest client with one request in flight. It collects the milliseconds of each request since the last
    sample."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._took: dict[str, list[float]] = {"produce": [], "metadata": []}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> dict[str, float]:
        """Return the median and the 99th percentile of each request in ms, and begin the next sample."""
        found: dict[str, float] = {}
        for kind in self._took:
            took, self._took[kind] = sorted(self._took[kind]), []
            if took:
                found[f"{kind}.p50"] = statistics.median(took)
                found[f"{kind}.p99"] = took[min(len(took) - 1, int(0.99 * len(took)))]
        return found

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Exception), Client(self._bootstrap) as client, client.producer() as producer:
                while not self._stop.wait(PROBE_PAUSE_S):
                    began = time.perf_counter()
                    producer.send(PROBE, 0, [b"probe"])
                    producer.flush()
                    between = time.perf_counter()
                    client.topics()
                    self._took["produce"].append(1000 * (between - began))
                    self._took["metadata"].append(1000 * (time.perf_counter() - between))
            self._stop.wait(0.5)


class Soak:
    """One run. Its folder outlives it."""

    def __init__(self, folder: Path, *, kill_after_s: float) -> None:
        self.folder = folder
        self.stop = threading.Event()
        self.kill_after_s = kill_after_s
        self.parts: dict[str, subprocess.Popen[bytes]] = {}
        state = folder / "state.json"
        known = json.loads(state.read_text()) if state.exists() else {}
        self.state: dict[str, Any] = {"runs": 0, "life": 0, "seconds": 0.0, "killed": False, "ports": ports(), **known}

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self, name: str, *words: str) -> None:
        """Start a process whose output goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.parts[name] = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)

    def start_broker(self) -> None:
        """Start the broker, and wait until it serves clients."""
        ready = self.folder / "broker.ready"
        ready.unlink(missing_ok=True)
        settings = (
            "log.retention.bytes=33554432", "log.segment.bytes=4194304", "log.retention.check.interval.ms=10000",
            "log.segment.delete.delay.ms=1000", "log.flush.offset.checkpoint.interval.ms=10000",
        )  # fmt: skip
        words = [word for setting in settings for word in ("--set", setting)]
        self.start(
            "broker", "kafkalite", "start", "--data-dir", str(self.folder / "data"), "--listeners",
            f"kafka://{self.bootstrap}", "--ready-file", str(ready), *words,
        )  # fmt: skip
        self.wait_for(ready, "broker")
        self.state["life"] += 1

    def start_console(self) -> None:
        """Start the console."""
        ready = self.folder / "console.ready"
        ready.unlink(missing_ok=True)
        self.start(
            "console", "kafkalite", "console", "-b", self.bootstrap, "--listen",
            f"127.0.0.1:{self.state['ports'][1]}", "--ready-file", str(ready),
        )  # fmt: skip
        self.wait_for(ready, "console")

    def start_workload(self) -> None:
        """Start the load, with the number of this run."""
        self.start(
            "workload", "benchmarks.soak.workload", "--bootstrap", self.bootstrap, "--folder", str(self.folder),
            "--run", str(self.state["runs"]),
        )  # fmt: skip

    def wait_for(self, path: Path, name: str) -> None:
        """Wait until a process has written its file. Raises SystemExit if it has ended."""
        while not path.exists():
            self.require(name)
            time.sleep(0.1)

    def require(self, *names: str) -> None:
        """Raise SystemExit if one of these processes has ended."""
        for name in names:
            if (status := self.parts[name].poll()) is not None:
                sys.exit(f"{name} exited with status {status}; see {self.folder / name}.log")

    def stop_parts(self, *names: str) -> None:
        """Stop these processes in this order."""
        for name in names:
            part = self.parts.pop(name, None)
            if part is not None and part.poll() is None:
                part.terminate()
                try:
                    part.wait(120)
                except subprocess.TimeoutExpired:
                    part.kill()
                    part.wait()

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.state['ports'][0]}"

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self, minutes: float) -> bool:
        """Run until all runs together had `minutes` of load; return whether every promise was kept."""
        self.state["runs"] += 1
        probe = None
        try:
            self.start_broker()
            with Client(self.bootstrap) as client:
                for name, partitions in ((RECORDS, PARTITIONS), (TRANSACTIONS, PARTITIONS), (PROBE, 1)):
                    if name not in client.topics():
                        client.admin.create_topic(name, partitions, configs=configs_of(name))
            self.start_console()
            self.start_workload()
            probe = Probe(self.bootstrap)
            self.observe(probe, 60 * minutes)
            probe.stop()
            self.stop_parts("workload", "console")
            return self.check()
        finally:
            if probe is not None:
                probe.stop()
            self.stop_parts("workload", "console", "broker")
            self.keep()

    def observe(self, probe: Probe, limit_s: float) -> None:
        """Write a sample every few seconds, and kill the broker once."""
        began, before = time.monotonic(), self.state["seconds"]
        with (self.folder / "samples.jsonl").open("a", encoding="ascii") as file:
            while self.state["seconds"] < limit_s and not self.stop.wait(SAMPLE_S):
                self.require("broker", "console", "workload")
                self.state["seconds"] = before + time.monotonic() - began
                if not self.state["killed"] and self.state["seconds"] >= self.kill_after_s:
                    self.parts["broker"].kill()
                    self.parts["broker"].wait()
                    self.start_broker()
                    self.state["killed"] = True
                row: dict[str, float] = {"seconds": self.state["seconds"], "life": self.state["life"]}
                for name in ("broker", "console"):
                    row |= figures_of(name, self.parts[name].pid)
                row |= figures_of_directory(self.folder / "data") | probe.take()
                file.write(json.dumps(row) + "\n")
                file.flush()

    def check(self) -> bool:
        """Look up every acknowledged record and transaction; return whether each exists once, and nothing aborted."""
        acknowledged = set((self.folder / "acknowledged.txt").read_text(encoding="ascii").splitlines())
        seen: Counter[str] = Counter()
        with Client(self.bootstrap) as client:
            for topic, letter in ((RECORDS, "r"), (TRANSACTIONS, "t")):
                for partition in range(PARTITIONS):
                    for chunk in client.read(topic, partition, isolation=READ_COMMITTED):
                        seen.update(f"{letter} {bytes(value or b'').decode()}" for value in chunk.columns.values)
        missing = sorted(acknowledged - seen.keys())
        twice = sorted(value for value, count in seen.items() if count > 1)
        aborted = seen["t aborted"]
        print(
            f"{len(acknowledged):,} acknowledged, {len(missing)} missing, {len(twice)} twice, {aborted} of aborted"
            f" transactions; {dict(sorted(self.counts().items()))}",
            flush=True,
        )
        for value in (*missing[:5], *twice[:5]):
            print(f"  {value}", flush=True)
        return not (missing or twice or aborted)

    def counts(self) -> dict[str, int]:
        """Return what the load of this run has done."""
        found: dict[str, int] = json.loads((self.folder / "counts.json").read_text())
        return found

    def keep(self) -> None:
        """Save the state for the next run."""
        temporary = self.folder / "state.tmp"
        temporary.write_text(json.dumps(self.state))
        temporary.rename(self.folder / "state.json")


def configs_of(topic: str) -> dict[str, str]:
    """Return a topic's settings. What is looked up at the end is retained."""
    return {"retention.bytes": "-1"} if topic != PROBE else {}


def ports() -> list[int]:
    """Return two free ports."""
    held = [socket.socket() for _ in range(2)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def slopes(rows: list[dict[str, float]]) -> dict[str, tuple[float, float, Slope | None]]:
    """Return each figure's first and last value and growth, in the life with most samples after the warm-up."""
    lives = Counter(int(row["life"]) for row in rows)
    longest = [row for row in rows if row["life"] == lives.most_common(1)[0][0]]
    began, ended = longest[0]["seconds"], longest[-1]["seconds"]
    counted = [row for row in longest if row["seconds"] - began >= min(WARM_UP_S, (ended - began) / 4)]
    found = {}
    for name in sorted({name for row in counted for name in row} - {"seconds", "life"}):
        points = [(row["seconds"], row[name]) for row in counted if name in row]
        times, values = [point[0] for point in points], [point[1] for point in points]
        found[name] = (values[0], values[-1], slope(times, values))
    return found


def report(folder: Path) -> None:
    """Print the table, and write it to FOLDER/soak.json."""
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    if not rows:
        print("no samples")
        return
    table = slopes(rows)
    document: dict[str, Any] = {"machine": machine(), "minutes": rows[-1]["seconds"] / 60, "slopes": {}}
    print(f"{'':24}{'first':>12}{'last':>12}{'per hour':>14}   95 %")
    for name, (first, last, growth) in table.items():
        unit, size = UNITS.get(name, ("", 1))
        words = f"{'-':>14}" if growth is None else f"{growth.per_hour / size:14.3f}   ± {growth.half_width / size:.3f}"
        print(f"{name:24}{first / size:12.2f}{last / size:12.2f}{words} {unit}")
        document["slopes"][name] = {
            "first": first,
            "last": last,
            "per_hour": None if growth is None else growth.per_hour,
            "half_width": None if growth is None else growth.half_width,
        }
    (folder / "soak.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="of data, output, state and samples")
    parser.add_argument("--minutes", type=float, default=60.0, help="of load, over all runs (default: 60)")
    parser.add_argument("--kill-after", type=float, default=2.0, help="minutes until the broker is killed (default: 2)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(folder, kill_after_s=60 * arguments.kill_after)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: soak.stop.set())
    kept = soak.run(arguments.minutes)
    report(folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
