"""Run a profile: in each repeat, sessions of all systems in turn, in an order that rotates by one.

    repeat 1:  kafkalite · null broker · Apache Kafka · ...       each: start, idle, warm up, cases, stop
    repeat 2:  null broker · Apache Kafka · ... · kafkalite
               then the same for the synchronous sessions

One system runs at a time, so that another system's idle threads affect no figure. Each session has a new process and an
empty folder. A failed case becomes a row with the reason, and the run continues.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.head_to_head import drive, drivers
from benchmarks.head_to_head.plan import SERIES, SHARES_A_QUEUE, SYSTEMS, Case, Profile
from benchmarks.head_to_head.report import STALLED_US
from benchmarks.head_to_head.system import DidNotStart, System
from benchmarks.path.harness import machine

if TYPE_CHECKING:
    from benchmarks.head_to_head.store import Store

Row = dict[str, Any]
PILOT_COUNT = 2_000
PILOT_WAITING_COUNT = 200
"""Where each message waits for an answer."""
PILOT_S = 0.25
PILOT_UNANSWERED_S = 1.0
"""Where nothing is answered: by then the buffers between are full, and the rate is the system's."""
PILOT_ROUNDS_MAX = 6
COUNT_MIN = 200
DRIVER_START_S = 60.0
SLOWER_MAX = 20.0
"""Times the profile's seconds after which a driver is given up."""
UNLIMITED_S = 4 * 3600.0
SIZE_TOTAL_MAX = 2_000_000_000
"""Bytes of one case at most, in every profile but the paper's."""


@dataclass
class Session:
    """One start of one system."""

    system: type[System]
    synchronous: bool
    repeat: int
    cases: Sequence[Case]
    too_fast: int = 0
    """The lowest rate that the system could not keep up with, 0 so far: higher ones are not tried."""

    @property
    def key(self) -> str:
        return f"{self.system.name}/{'synchronous' if self.synchronous else 'asynchronous'}/{self.repeat}"


@dataclass
class Runner:
    """One run. `make` creates a system in a folder, or one on a remote host."""

    profile: Profile
    names: Sequence[str]
    store: Store
    options: Row = field(default_factory=dict)
    make: Callable[[type[System], Path, bool], System] | None = None
    resume: bool = False
    remote: bool = False
    _done: int = 0
    _total: int = 0
    _began: float = 0.0

    def run(self) -> None:
        """Run all sessions. What is missing is recorded by name in `skipped` of run.json."""
        started = time.time()
        sessions = self.plan()
        head = {
            "profile": self.profile.name,
            "options": self.options,
            "machine": machine(),
            "skipped": self._skipped,
            "drivers": self._drivers,
            "systems": {},
            "counts": {},
            "finished": False,
        }
        (self.store.resume if self.resume else self.store.begin)(head)
        for name, reason in sorted(self._skipped.items()):
            say(f"skipped: {name}: {reason}")
        sessions = [session for session in sessions if not self.store.is_closed(session.key)]
        self._total, self._began = sum(len(session.cases) for session in sessions), time.monotonic()
        with tempfile.TemporaryDirectory(
            prefix="kafkalite-bench-", dir=os.environ.get("KAFKALITE_BENCH_DIR")
        ) as folder:
            for session in sessions:
                self._session(session, Path(folder) / session.key.replace("/", "-"))
        self.store.run["finished"] = True
        self.store.run["seconds"] = round(self.store.run.get("seconds", 0) + time.time() - started, 1)
        self.store.save()

    def plan(self) -> list[Session]:
        """Return the sessions in order. Record impossible systems, series and modes in `skipped`."""
        self._skipped: dict[str, str] = {}
        self._drivers: dict[str, Row] = {}
        present = []
        for name in self.names:
            reason = "" if self.remote else SYSTEMS[name].missing()
            if reason:
                self._skipped[name] = reason
            else:
                present.append(SYSTEMS[name])
        sessions = []
        for synchronous, cases in ((False, self.profile.cases), (True, self.profile.synchronous_cases)):
            if not cases:
                continue
            found = [(system, self._possible(system, cases, synchronous=synchronous)) for system in present]
            found = [(system, possible) for system, possible in found if possible]
            for repeat in range(self.profile.repeat_count):
                shift = repeat % max(1, len(found))
                for system, possible in [*found[shift:], *found[:shift]]:
                    sessions.append(Session(system, synchronous, repeat, possible))
        return sorted(sessions, key=lambda session: session.repeat)

    def _possible(self, system: type[System], cases: Sequence[Case], *, synchronous: bool) -> list[Case]:
        """Return the cases for which the system has the mode and a driver."""
        if synchronous and system.synchronous_missing:
            self._skipped[f"{system.name}, synchronous"] = system.synchronous_missing
            return []
        possible = []
        for case in cases:
            names = SERIES[case.series].get(system.name)
            if names is None:
                continue  # a series that this system has no part in, as 0.7's clients elsewhere
            if case.kind == "consume" and case.clients > 1 and system.name in SHARES_A_QUEUE:
                self._skipped[f"{system.name}, {case.name}"] = "several consumers would share the messages of one queue"
                continue
            try:
                driver, _ = drive.first_driver(tuple(names))
            except drivers.Missing as error:
                self._skipped[f"{system.name}, {case.series} client"] = str(error)
                continue
            about = describe(driver)
            self._drivers[driver] = about
            if case.kind in {"produce", "both"} and about["acks"] and case.ack not in about["acks"]:
                self._skipped[f"{system.name}, {case.name}"] = f"{driver} does not support acknowledgement {case.ack}"
            else:
                possible.append(case)
        return possible

    def _session(self, session: Session, folder: Path) -> None:
        make = self.make or (lambda system, place, synchronous: system(place, synchronous=synchronous))
        system = make(session.system, folder, session.synchronous)
        try:
            try:
                system.start()
            except (DidNotStart, TimeoutError) as error:
                self._fail(session, "start", str(error))
                return
            self._about(session, system)
            self._add(session, {"case": "start", **self._idle(system)})
            with contextlib.suppress(drive.DriverFailed):
                self._warm_up(session, system)
            for case in session.cases:
                self._case(session, system, case)
        finally:
            system.stop()
            shutil.rmtree(folder, ignore_errors=True)
        self.store.close(session.system.name, session.key)

    def _about(self, session: Session, system: System) -> None:
        about = self.store.run["systems"].setdefault(
            system.name, {"title": system.title, "version": "unknown" if self.remote else system.version()}
        )
        about["synchronous" if session.synchronous else "asynchronous"] = system.settings
        self.store.save()

    def _idle(self, system: System) -> Row:
        load = {"load_average": round(os.getloadavg()[0], 1)}
        time.sleep(self.profile.idle_s)
        if not system.pids:
            return load
        return {**load, "start_s": system.start_s, "idle_rss_bytes": drive.memory(system.pids)}

    def _warm_up(self, session: Session, system: System) -> None:
        """Produce in batches of 50 for a while and read this back, so that a JVM compiles and the file system has its
        pages."""
        ack = "disk" if session.synchronous else "one"
        case = Case("warm-up", "produce", ack=ack)
        key = f"{session.system.name}/{'synchronous' if session.synchronous else 'asynchronous'}/warm-up"
        count = self._count(system, case, key, self.profile.warm_up_s)
        call = Call(system, case, f"{self._prefix}warm-up-{session.repeat}", count, self._timeout_s(case))
        call.produce()
        call.consume()

    def _case(self, session: Session, system: System, case: Case) -> None:
        self._done += 1
        topic = f"{self._prefix}{case.after or case.name}-{session.repeat}"
        if case.kind == "latency" and session.too_fast:
            self._add(session, {"case": case.name, "too_fast": session.too_fast})
            return
        try:
            count = self._case_count(session, system, case)
            call = Call(system, case, topic, count, self._timeout_s(case))
            prepared = case.kind == "both" and call.store_backlog()
            meter = drive.Meter(system.pids)
            meter.begin()
            row = {"produce": call.produce, "consume": call.consume, "latency": call.latency, "both": call.both}[
                case.kind
            ]()
            row.update(meter.end())
            row["backlog_count"] = int(prepared)
        except (drive.DriverFailed, drivers.Missing, LookupError) as error:
            self._fail(session, case.name, str(error))
            return
        if "server_cpu_s" in row and row["messages"]:
            row["server_cpu_s_per_million"] = row["server_cpu_s"] / row["messages"] * 1e6
        if row.get("p50_us", 0) > STALLED_US:
            session.too_fast = case.rate
        row["client_cpu_s_per_million"] = row["client_cpu_s"] / max(1, row["messages"]) * 1e6
        self._add(session, {"case": case.name, "driver": call.driver, "size": case.size, **row})

    def _case_count(self, session: Session, system: System, case: Case) -> int:
        mode = "synchronous" if session.synchronous else "asynchronous"
        key = f"{session.system.name}/{mode}/{case.after or case.name}"
        if case.kind == "latency":
            return int(case.rate * self.profile.latency_s)
        if case.kind == "consume":
            found: int | None = self.store.run["counts"].get(key)
            if found is None:
                raise LookupError(f"{case.after} stored no messages to read")
            return found
        return self._count(system, case, key, self.profile.seconds * case.factor)

    def _count(self, system: System, case: Case, key: str, seconds: float) -> int:
        """Return the message count of a case. The first repeat determines it from the target duration."""
        counts = self.store.run["counts"]
        if key not in counts:
            step = case.batch * case.clients
            if self.profile.count and case.name != "warm-up":
                counts[key] = self.profile.count // step * step
            else:
                rate = self._pilot(system, case, key)
                most = min(self.profile.count_max * case.factor, SIZE_TOTAL_MAX // case.size)
                count = int(max(COUNT_MIN, min(rate * seconds, most)))
                counts[key] = max(step, count // step * step)
            self.store.save()
        count: int = counts[key]
        return count

    def _pilot(self, system: System, case: Case, key: str) -> float:
        """Measure messages per second in short runs, each longer than the last, until one is long enough."""
        waits = case.ack == "disk" or (case.in_flight == 1 and case.batch == 1 and case.ack != "none")
        count = max(PILOT_WAITING_COUNT if waits else PILOT_COUNT, case.batch * case.clients)
        rate = 0.0
        for attempt in range(PILOT_ROUNDS_MAX):
            topic = f"{self._prefix}{key.replace('/', '-')}-pilot-{attempt}"
            row = Call(system, case, topic, count, self._timeout_s(case)).produce()
            rate = row["rate_per_s"]
            enough_s = PILOT_S if case.ack != "none" else PILOT_UNANSWERED_S
            if row["seconds"] >= enough_s or count * 4 >= self.profile.count_max:
                break
            count = int(count * 4)
        return rate

    def _timeout_s(self, case: Case) -> float:
        if self.profile.count:
            return UNLIMITED_S
        seconds = self.profile.latency_s if case.kind == "latency" else self.profile.seconds
        return DRIVER_START_S + SLOWER_MAX * seconds * case.factor * (1 + case.backlog)

    @property
    def _prefix(self) -> str:
        """Return a prefix for topic names, because a remote host may keep topics of earlier runs."""
        return f"bench-{int(self._began * 1000):x}-" if self.remote else ""

    def _add(self, session: Session, row: Row) -> None:
        mode = "synchronous" if session.synchronous else "asynchronous"
        known = {"session": session.key, "system": session.system.name, "mode": mode, "repeat": session.repeat}
        self.store.add(session.system.name, {**known, **row})
        say(self._line(session, row))

    def _fail(self, session: Session, case: str, reason: str) -> None:
        self._add(session, {"case": case, "failed": " ".join(reason.split())[:600]})

    def _line(self, session: Session, row: Row) -> str:
        elapsed = time.monotonic() - self._began
        left = elapsed / self._done * (self._total - self._done) if self._done else 0
        head = f"[{self._done}/{self._total} {clock(elapsed)} +{clock(left)}]"
        mode = " sync" if session.synchronous else ""
        name = f"{head:<22} {session.repeat + 1}/{self.profile.repeat_count} {session.system.title + mode:<20}"
        return f"{name} {row['case']:<26} {figures(row)}"


@dataclass
class Call:
    """One case on one system, with the drivers' arguments."""

    system: System
    case: Case
    topic: str
    count: int
    timeout_s: float
    driver: str = ""
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = SERIES[self.case.series][self.system.name]
        self.driver, self.command = drive.first_driver(tuple(names))

    def produce(self) -> Row:
        """Run all producers at once, each with its part of the messages."""
        return drive.throughput(drive.call(list(self._producers(self.count)), self.timeout_s))

    def consume(self) -> Row:
        """Run all consumers at once; each reads everything."""
        commands = [self._consumer(self.count) for _ in range(self.case.clients)]
        return drive.throughput(drive.call(commands, self.timeout_s))

    def latency(self) -> Row:
        load = ["--rate", self.case.rate, "--seconds", self.count // self.case.rate, "--size", self.case.size]
        (row,) = drive.call([[*self.command, "latency", *self._target, *load]], self.timeout_s)
        return drive.latency(row)

    def store_backlog(self) -> int:
        """Store the backlog before both sides begin: a tenth of the messages, or several times as many."""
        count = self.count // 10 if self.case.backlog == 1 else self.count * self.case.backlog
        count = max(self.case.batch, count // self.case.batch * self.case.batch)
        drive.call(list(self._producers(count)), self.timeout_s)
        self._backlog = count
        return count

    def both(self) -> Row:
        """Run one producer, and one consumer that begins at the first message of the backlog."""
        commands = [*self._producers(self.count), self._consumer(self.count + self._backlog)]
        produced, consumed = drive.call(commands, self.timeout_s)
        row = drive.throughput([produced])
        row["client_cpu_s"] += consumed["cpu_s"]
        return {**row, "consume_rate_per_s": consumed["messages"] / consumed["seconds"]}

    def _producers(self, total: int) -> Iterator[list[object]]:
        case = self.case
        load = ["--size", case.size, "--batch", case.batch, "--in-flight", case.in_flight, "--ack", case.ack]
        for _ in range(case.clients):
            yield [*self.command, "produce", *self._target, "--messages", total // case.clients, *load]

    def _consumer(self, count: int) -> list[object]:
        return [*self.command, "consume", *self._target, "--messages", count]

    @property
    def _target(self) -> list[object]:
        return ["--host", self.system.host, "--port", self.system.port_for(self.driver), "--topic", self.topic]


def describe(driver: str) -> Row:
    """Return the note for a driver's figures."""
    found = drivers.DRIVERS.get(driver)
    if found is None:
        return {"acks": {}, "not_comparable": ""}
    return {"language": found.language, "acks": dict(found.acks), "not_comparable": found.not_comparable}


def figures(row: Row) -> str:
    """Return the figures of a row that the terminal shows."""
    if "failed" in row:
        return f"failed: {row['failed'][:200]}"
    if "start_s" in row:
        return f"ready after {row['start_s']:.2f} s, {row['idle_rss_bytes'] / 1e6:.0f} MB idle"
    if "too_fast" in row:
        return f"not tried: {row['too_fast']:,}/s was too fast already"
    if "rate_per_s" not in row:
        return "reached"
    parts = [f"{row['rate_per_s']:>11,.0f}/s"]
    if "consume_rate_per_s" in row:
        parts.append(f"consumer {row['consume_rate_per_s']:,.0f}/s")
    if "p99_us" in row:
        parts.append(f"p50 {row['p50_us'] / 1e3:.2f} p99 {row['p99_us'] / 1e3:.2f} p99.9 {row['p999_us'] / 1e3:.2f} ms")
    if "server_cpu_s_per_million" in row:
        parts.append(f"CPU s/million: broker {row['server_cpu_s_per_million']:.2f}")
        parts.append(f"client {row['client_cpu_s_per_million']:.2f}")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """Format seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def say(text: str) -> None:
    """Print progress to stderr; the tables go to stdout."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
