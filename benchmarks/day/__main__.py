"""Run a pipeline for hours, audited all the time: producer, live broker, mirror, offline broker, loader and consumers.

  python -m benchmarks.day --minutes 120 --folder /data/day             up to 1,000,000,000 messages in 120 minutes
  python -m benchmarks.day --minutes 5 --folder /data/day --rate 20000  at most 20,000 messages per second
  python -m benchmarks.day --folder /data/day                           continue after Ctrl-C

This is the pipeline of the Kafka paper. Messages have 200 bytes and the audit's mark. Each broker's log and the loaded
files are limited to --keep bytes. When a stage is --lag messages behind, the producer waits, so that no message expires
before it was copied, loaded and counted.

A line is printed every minute. At the end, FOLDER/day.json has the number of messages, the audit's findings, and the
memory of each process. Ctrl-C ends the run in order.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.day.shape import CONSUMER, MIRROR, PARTITIONS, TOPIC, VALUE_SIZE
from benchmarks.path.harness import machine
from kafkalite.client import Client

STAGES: Final = ("live", "mirror", CONSUMER, "offline", "loaded")
SAMPLE: Final = re.compile(r'^(\w+)(?:\{(\w+)="([^"]*)".*\})? (\S+)$', re.MULTILINE)
MINUTE_S: Final = 60.0
STEP_S: Final = 1.0
DRAIN_S: Final = 900.0
"""How long stages are waited for after the last message."""
FLAT_SHARE, FLAT_SIZE = 0.1, 32 * 1024 * 1024
"""By how much a process may have grown between the second and the last quarter of a run, and still be flat."""
GOAL: Final = 1_000_000_000
PARTS: Final = ("producer", "readers", "loader", "mirror", "audit", "offline", "live")
"""In the order in which they are stopped."""


@dataclass
class State:
    """What one run passes to the next: its ports, settings and progress."""

    ports: dict[str, int]
    count: int
    minutes: float
    rate: float
    keep: int
    lag: int
    window: float
    grace: float
    sent: int = 0
    seconds: float = 0.0
    """Of producing."""
    held_s: float = 0.0
    began: str = ""
    runs: int = 0
    minutes_told: list[dict[str, Any]] = field(default_factory=list)


class Day:
    """One run of the pipeline."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state
        self.stop = threading.Event()
        self.parts: dict[str, subprocess.Popen[bytes]] = {}

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self, name: str, *words: str) -> None:
        """Start a process whose output goes to a file."""
        path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.parts[name] = subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )

    def start_broker(self, name: str) -> None:
        """Start a broker, and wait until it is ready."""
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        settings = {
            "log.retention.bytes": self.state.keep // PARTITIONS,
            "log.segment.bytes": max(self.state.keep // PARTITIONS // 8, 16 * 1024 * 1024),
            "log.retention.check.interval.ms": 5000,
            "num.partitions": PARTITIONS,
        }
        words = ["--data-dir", str(self.folder / name), "--listeners", f"kafka://{self.address(name)}"]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.start(name, "-m", "kafkalite", "start", *words, "--ready-file", str(ready))
        while not ready.exists():
            self.require(name)
            time.sleep(0.1)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.state.ports[name]}"

    def require(self, *names: str) -> None:
        """Raise SystemExit if one of these processes has ended."""
        for name in names:
            if (status := self.parts[name].poll()) is not None:
                sys.exit(f"{name} exited with status {status}; see {self.folder / name}.log")

    def start_all(self) -> None:
        live, offline = self.address("live"), self.address("offline")
        for name in ("live", "offline"):
            self.start_broker(name)
        with Client(live) as client, contextlib.suppress(Exception):
            client.admin.create_topic(TOPIC, PARTITIONS)
        loaded = str(self.folder / "loaded")
        self.start(
            "mirror", "-m", "kafkalite", "mirror", "--from", live, "--to", offline, "--name", MIRROR,
            "--topics", TOPIC, "--refresh", "2", "-q",
        )  # fmt: skip
        with Client(offline) as client:
            while TOPIC not in client.topics():
                self.require("mirror")
                time.sleep(0.2)
        self.start(
            "loader", "-m", "benchmarks.day.loader", "--bootstrap", offline, "--to", loaded,
            "--keep", str(self.state.keep),
        )  # fmt: skip
        self.start("readers", "-m", "benchmarks.day.consumer", "--bootstrap", live)
        self.start(
            "audit", "-m", "kafkalite", "audit", "--follow", "--live", live, "--offline", offline, "--mirror", MIRROR,
            "--loaded", loaded, "--consumer", CONSUMER, "--topics", TOPIC, "--grace", str(self.state.grace),
            "--state", str(self.folder / "audit.state"), "--metrics", self.address("metrics"), "--json",
            "--interval", "2",
        )  # fmt: skip
        self.start(
            "producer", "-m", "benchmarks.day.producer", "--bootstrap", live, "--folder", str(self.folder),
            "--count", str(self.state.count - self.state.sent), "--rate", str(self.state.rate),
            "--window", str(self.state.window),
        )  # fmt: skip

    def stop_all(self) -> None:
        for name in PARTS:
            part = self.parts.get(name)
            if part is not None and part.poll() is None:
                part.terminate()
                try:
                    part.wait(120)
                except subprocess.TimeoutExpired:
                    part.kill()
                    part.wait()

    # --- what is seen -------------------------------------------------------------------------------------------------

    def samples(self) -> dict[tuple[str, str], float]:
        """Return the audit's metrics: (name, value of its only label) → number. Empty while it does not respond."""
        try:
            with urllib.request.urlopen(f"http://{self.address('metrics')}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        return {(name, value): float(number) for name, _, value, number in SAMPLE.findall(text)}

    def sent(self) -> int:
        """Return the number of messages acknowledged in this run."""
        try:
            found: int = json.loads((self.folder / "sent.json").read_text())["sent"]
        except FileNotFoundError:
            return 0
        return found

    def memory(self) -> dict[str, dict[str, int]]:
        """Return the resident and the private bytes of each process."""
        found = {}
        for name, part in self.parts.items():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                rows = dict(line.split(":", 1) for line in Path(f"/proc/{part.pid}/status").read_text().splitlines())
                if "VmRSS" in rows:
                    sizes = {key: 1024 * int(rows[key].split()[0]) for key in ("VmRSS", "RssAnon")}
                    found[name] = {"rss": sizes["VmRSS"], "own": sizes["RssAnon"]}
        return found

    def disk(self) -> int:
        """Return the bytes of all files below the folder."""
        total = 0
        for place, _, files in os.walk(self.folder):
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(os.path.join(place, name)).st_blocks * 512
        return total

    def tell_minute(self, seconds: float, samples: dict[tuple[str, str], float]) -> None:
        """Print one line and add one row to the record. `seconds` is the time spent producing."""
        records = {stage: int(samples.get(("kafkalite_audit_records_total", stage), 0)) for stage in STAGES}
        memory = self.memory()
        sent = self.state.sent + self.sent()
        windows = {
            verdict: int(samples.get(("kafkalite_audit_windows", verdict), 0)) for verdict in ("complete", "different")
        }
        row = {"seconds": round(seconds), "sent": sent, "records": records, "windows": windows}
        row |= {"memory": memory, "disk": self.disk()}
        self.state.minutes_told.append(row)
        behind = ", ".join(f"{stage} -{max(sent - count, 0):,}" for stage, count in records.items())
        own = ", ".join(f"{name} {sizes['rss'] >> 20}" for name, sizes in sorted(memory.items()))
        print(
            f"{seconds / 60:6.1f} min  {sent:,} sent ({sent / max(seconds, 1):,.0f}/s); {behind};"
            f" windows {windows['complete']} complete, {windows['different']} not;"
            f" disk {self.disk() / 2**30:.1f} GiB; MiB: {own}",
            flush=True,
        )

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run all; return whether it was completed, and the audit found every message exactly once everywhere."""
        (self.folder / "sent.json").unlink(missing_ok=True)
        (self.folder / "hold").unlink(missing_ok=True)
        began = time.monotonic()
        self.state.runs += 1
        complete = produced = False
        try:
            self.start_all()
            began = time.monotonic()
            self.produce(began)
            self.parts["producer"].terminate()
            self.parts["producer"].wait(300)
            self.state.seconds += time.monotonic() - began
            produced = True
            if not self.stop.is_set():
                complete = self.drain()
        finally:
            self.stop_all()
            told = self.folder / "sent.json"
            if told.exists():
                counts = json.loads(told.read_text())
                self.state.sent += counts["sent"]
                self.state.held_s += counts["held_s"]
            if not produced:
                self.state.seconds += time.monotonic() - began
            self.keep()
        return complete

    def produce(self, began: float) -> None:
        """Wait until the count or the time is reached. A stage that is too far behind makes the producer wait."""
        next_line = began + MINUTE_S
        hold = self.folder / "hold"
        limit_s = self.state.minutes * 60 - self.state.seconds
        while not self.stop.is_set() and time.monotonic() - began < limit_s:
            if self.parts["producer"].poll() is not None:
                return
            self.require(*(name for name in PARTS if name != "producer"))
            samples = self.samples()
            counted = min(samples.get(("kafkalite_audit_records_total", stage), 0.0) for stage in STAGES)
            if self.state.sent + self.sent() - counted > self.state.lag:
                hold.touch()
            else:
                hold.unlink(missing_ok=True)
            if time.monotonic() >= next_line:
                next_line += MINUTE_S
                self.tell_minute(self.state.seconds + time.monotonic() - began, samples)
            self.stop.wait(STEP_S)

    def drain(self) -> bool:
        """Wait until each stage has all messages; return whether every window was judged complete."""
        total = self.state.sent + self.sent()
        deadline, next_line = time.monotonic() + DRAIN_S, time.monotonic() + MINUTE_S
        while not self.stop.is_set() and time.monotonic() < deadline:
            self.require(*(name for name in PARTS if name != "producer"))
            samples = self.samples()
            counted = [samples.get(("kafkalite_audit_records_total", stage), 0.0) for stage in STAGES]
            judged = sum(
                samples.get(("kafkalite_audit_windows", verdict), 0.0) for verdict in ("complete", "different")
            )
            if min(counted) >= total and judged and not samples.get(("kafkalite_audit_open_windows", ""), 1.0):
                self.tell_minute(self.state.seconds, samples)
                return not samples.get(("kafkalite_audit_windows", "different"), 1.0)
            if time.monotonic() >= next_line:
                next_line += MINUTE_S
                self.tell_minute(self.state.seconds, samples)
            self.stop.wait(STEP_S)
        return False

    def keep(self) -> None:
        """Save the state for the next run."""
        temporary = self.folder / "state.tmp"
        temporary.write_text(json.dumps(asdict(self.state)))
        temporary.rename(self.folder / "state.json")

    def verdicts(self) -> dict[str, Any]:
        """Return the audit's verdicts: messages of complete windows, and the number of reported errors."""
        last: dict[int, dict[str, Any]] = {}
        wrong = []
        for line in (self.folder / "audit.log").read_text(errors="replace").splitlines():
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if event["event"] in {"complete", "incomplete"}:
                last[event["window_ms"]] = event
            elif event["event"] == "wrong":
                wrong.append(event)
        complete = [event for event in last.values() if event["event"] == "complete"]
        return {
            "windows": len(last),
            "complete_windows": len(complete),
            "messages_of_complete_windows": sum(event["expected"] for event in complete),
            "lines_about_something_wrong": len(wrong),
        }


def flat(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each process's private memory: highest in the second and the last quarter, and whether it is flat."""
    found = {}
    for name in PARTS:
        sizes = [row["memory"][name] for row in rows if name in row["memory"]]
        own, quarter = [size["own"] for size in sizes], max(len(sizes) // 4, 1)
        if own:
            before, last = max(own[quarter : 2 * quarter] or own), max(own[-quarter:])
            found[name] = {
                "own_second_quarter": before,
                "own_last_quarter": last,
                "rss_max": max(size["rss"] for size in sizes),
                "flat": last <= before * (1 + FLAT_SHARE) + FLAT_SIZE,
            }
    return found


def report(day: Day, *, complete: bool) -> None:
    """Write FOLDER/day.json, and print a summary."""
    state = day.state
    memory = flat(state.minutes_told)
    document = {
        "machine": machine(),
        "began": state.began,
        "value_size": VALUE_SIZE,
        "complete": complete,
        "audit": day.verdicts(),
        "memory": memory,
        "disk_max": max((row["disk"] for row in state.minutes_told), default=0),
        "messages_per_second": round(state.sent / max(state.seconds, 1)),
        **asdict(state),
    }
    place = day.folder / "day.json"
    place.write_text(json.dumps(document, indent=1) + "\n")
    grown = [name for name, row in memory.items() if not row["flat"]]
    verdict = "complete" if complete else "NOT complete"
    print(f"{state.sent:,} messages in {state.seconds / 60:.1f} min; audit {verdict}; memory", end=" ")
    print("flat" if not grown else f"grew in {', '.join(grown)}", f"; written: {place}", sep="")


def free_ports() -> dict[str, int]:
    """Return free ports. They stay the same in later runs, because the audit knows its brokers by them."""
    held = [socket.socket() for _ in range(3)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = dict(zip(("live", "offline", "metrics"), (one.getsockname()[1] for one in held), strict=True))
    for one in held:
        one.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="of data, output, state and record")
    parser.add_argument("--minutes", type=float, default=120.0, help="of producing (default: 120)")
    parser.add_argument("--count", type=int, default=GOAL, help=f"messages (default: {GOAL})")
    parser.add_argument("--rate", type=float, default=1e9, help="messages a second, at most")
    parser.add_argument(
        "--keep", type=int, default=3 * 2**30, help="bytes of a broker's log, and of loaded files (3 GiB)"
    )
    parser.add_argument("--window", type=float, default=60.0, help="seconds of the audit's windows (60)")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds after their end (60)")
    parser.add_argument("--lag", type=int, default=4_000_000, help="messages a stage may be behind (4,000,000)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "state.json"
    if known.exists():
        state = State(**json.loads(known.read_text()))
        print(f"going on after {state.seconds / 60:.1f} min and {state.sent:,} messages", flush=True)
    else:
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        limits = {
            name: getattr(arguments, name) for name in ("count", "minutes", "rate", "keep", "lag", "window", "grace")
        }
        state = State(free_ports(), **limits, began=began)
    day = Day(folder, state)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: day.stop.set())
    complete = day.run()
    report(day, complete=complete)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
