"""A broker on a crash state, and what it keeps of what was promised.

The judging process has everything imported and, but for tests, no threads; each state is a fork of it, which starts a
broker on the state's directory, asks it over a socket, and writes its verdict into a pipe. A fork that dies, or says
nothing in time, is a finding too.

Where tests share the process there are threads: of those of pytest's plugins and of brokers a fork has nothing but what
they were at, and CPython 3.11 does not get over all of that. So a fork imports nothing, for which it would parse, and
collects no garbage, which somebody else may have been collecting.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import logging
import os
import resource
import select
import signal
import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.base.clock import SystemClock
from kafkalite.broker import Broker
from kafkalite.broker.handlers import table
from kafkalite.broker.log import expiry_checkpoint
from kafkalite.errors import StartupError
from tests.power.look import Look
from tests.power.promises import PROMISES
from tests.power.promises.base import Past
from tests.power.promises.expiry_time import AHEAD_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.power.recording import Recording

TIME_MAX_S = 120
FILE_SIZE_MAX = 256 << 20
FINDINGS_MAX, TEXT_MAX = 100, 1000
FINDINGS_OF_ONE_MAX = 20
"""Of one promise, so that many of one do not hide the others."""
QUIET = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": "3600000",
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "num.network.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
}
"""Additional settings of the judged broker: no background work while it is examined."""
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}

LOADED_LATE = (
    "concurrent.futures.thread",
    "kafkalite._native.classic.classic_connection",
    "kafkalite.broker.log.classic.host",
    "kafkalite.broker.security.authorizer",
)
"""Modules that a broker imports on first use, in addition to handlers."""

for name in LOADED_LATE:
    import_module(name)
for row in table.ROWS:
    for function in (row.handler, row.blocks):
        if isinstance(function, table.LazyFunction):
            function.load()


@dataclass
class Verdict:
    """What became of one state. Times in seconds."""

    findings: list[str] = field(default_factory=list)
    refused: str = ""
    cpu_s: float = 0.0


class ClockAhead(SystemClock):
    """The wall clock of a machine that came back from the power cut with a wrong one: nothing may expire by it."""

    def time_ms(self) -> int:
        return super().time_ms() + AHEAD_MS


class Lines(logging.Handler):
    """Keeps what the broker logs."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()} {getattr(record, 'fields', '')}")
        if record.exc_info:
            self.tracebacks.append(where(record.exc_info[1]))


def where(error: BaseException | None) -> str:
    """An exception with its places. (Python 3.11 parses source lines to format one, and may fail at that in a fork.)"""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} at {places}"


def judge(
    data_directory: Path,
    recording: Recording,
    moment: int,
    look: Callable[[Verdict, Path, Recording, int], list[str]] | None = None,
) -> Verdict:
    """Starts a broker in a fork of this process and judges it, by default by PROMISES."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_fork(writing, look or _look, data_directory, recording, moment)
    os.close(writing)
    try:
        answer = _read_all(reading)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    try:
        verdict = Verdict(**json.loads(answer))
    except ValueError:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        what = "said nothing in time" if killed else f"ended with wait status {status}"
        verdict = Verdict([f"the judged process {what}"])
    verdict.cpu_s += usage.ru_utime + usage.ru_stime
    return verdict


def _read_all(descriptor: int) -> bytes:
    """Everything up to the end, or what came in time."""
    deadline = time.monotonic() + TIME_MAX_S
    pieces = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(descriptor, 1 << 16) if ready else b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _in_fork(
    descriptor: int,
    look: Callable[[Verdict, Path, Recording, int], list[str]],
    data_directory: Path,
    recording: Recording,
    moment: int,
) -> None:
    status = 1
    try:
        gc.disable()
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_MAX, FILE_SIZE_MAX))
        resource.setrlimit(resource.RLIMIT_CPU, (TIME_MAX_S, TIME_MAX_S))
        verdict = Verdict()
        try:
            verdict.findings = look(verdict, data_directory, recording, moment)
        except BaseException as error:  # noqa: BLE001 - any error is the verdict
            verdict.findings.append(f"judging failed: {where(error)}")
        told = [text[:TEXT_MAX] for text in verdict.findings[:FINDINGS_MAX]]
        with os.fdopen(descriptor, "w") as pipe:
            json.dump({"findings": told, "refused": verdict.refused[:TEXT_MAX]}, pipe)
        status = 0
    finally:
        os._exit(status)


def _look(verdict: Verdict, data_directory: Path, recording: Recording, moment: int) -> list[str]:
    lines = Lines()
    logger = logging.getLogger("kafkalite")
    logger.addHandler(lines)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    past = Past(recording.history, moment)
    settings = {**recording.broker_settings, **QUIET, "log.dirs": str(data_directory)}
    settings["listeners"] = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"
    stored = expiry_checkpoint.read(str(data_directory))
    broker = Broker(settings, clock=ClockAhead())
    findings: list[str] = []
    try:
        broker.start()
    except StartupError as error:
        verdict.refused = str(error)
        if "\n" in str(error) or not str(error):
            findings.append(f"the broker refuses to start in other than one sentence: {error!r}")
        if any(past.promised(op) for op in recording.history.every_op()):
            findings.append(f"the broker refuses to start: {error}")
        return findings
    endpoint = broker.classic_endpoint
    look = Look(int(broker.bootstrap_servers.rsplit(":", 1)[1]), endpoint.port if endpoint else 0)
    look.stored, look.expiry_ms = stored, broker.logs.expiry_time.time_ms()
    try:
        findings += examine(past, look)
    except Exception as error:  # noqa: BLE001 - the broker's log has the reason
        findings.append(f"judging failed: {where(error)}")
    findings += [f"the broker's log has a traceback: {text}" for text in lines.tracebacks]
    if os.environ.get("POWER_SHOW_LOG"):
        print("\n".join(lines.lines))
    return findings


def examine(past: Past, look: Look) -> list[str]:
    """Every promise, beside what a broker says."""
    findings: list[str] = []
    look.read_topics()
    settings = past.history.settings["topics"]
    keyed = {name for name, own in settings.items() if "compact" in own.get("cleanup.policy", "")}
    classic = {name for name, own in settings.items() if own.get("message.format") == "classic"}
    keys = [
        (topic.name, partition)
        for topic in look.topics.values()
        if topic.name not in INTERNAL | classic
        for partition in range(topic.partition_count)
    ]
    look.logs = look.read(keys, keyed=keyed)
    for promise in PROMISES:
        found = itertools.islice(promise.check(past, look), FINDINGS_OF_ONE_MAX)
        findings += [f"{promise.name}: {text}" for text in found]
    for promise in PROMISES:
        found = itertools.islice(promise.check_after(past, look), FINDINGS_OF_ONE_MAX)
        findings += [f"{promise.name}: {text}" for text in found]
    return findings
