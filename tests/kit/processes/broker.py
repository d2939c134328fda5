"""Starts, stops and kills a kafkalite broker in a separate process, as an operator or a power cut would.

The broker gets a fixed port, so that clients find it again after a restart. Its output goes to `broker.log` next to the
data directory and is quoted when it does not come up. Nothing here knows how the broker works: only its command line,
its ready file, its exit status and its entries in /proc.

Not thread-safe except `kill()` and `alive`, which may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS = 16_000  # below those that the system gives
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
REPOSITORY = Path(__file__).resolve().parents[3]
T = TypeVar("T")


class BrokerDidNotStart(RuntimeError):
    """The process ended or stayed silent; `status` is its exit status (None: still running), `log` its output."""

    def __init__(self, status: int | None, log: str) -> None:
        super().__init__(f"broker did not become ready (exit status {status}):\n{log[-4000:]}")
        self.status = status
        self.log = log


def free_port() -> int:
    """Return a free port of 127.0.0.1 outside the range that the kernel assigns to unnamed ports."""
    end = int(LOCAL_PORTS.read_text().split()[0])
    chance = random.SystemRandom()  # several runs draw different ports, even with equal seeds
    while True:
        port = chance.randrange(max(1024, end - PORTS), end)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], T], timeout_s: float, what: str, interval_s: float = 0.02) -> T:
    """Polls until `condition()` is true and returns its value; a deadline that passes raises with the last value."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s; last value {value!r}")
        time.sleep(interval_s)


def limited(*, descriptors: int | None = None, file_size: int | None = None) -> list[str]:
    """Return the command prefix that limits a command's open files, or the size of its files in bytes.

    A program of Debian's util-linux sets the limits, since Python code between fork and exec could meet locks that this
    process's other threads held.
    """
    wanted = {"nofile": descriptors, "fsize": file_size}
    flags = [f"--{name}={limit}" for name, limit in wanted.items() if limit is not None]
    return ["prlimit", *flags] if flags else []


@dataclass
class Usage:
    """One look at /proc/PID."""

    cpu_s: float
    user_s: float
    system_s: float
    rss_bytes: int
    descriptor_count: int
    thread_count: int


def usage_of(pid: int) -> Usage:
    """CPU seconds, memory, descriptors and threads of a process of ours."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    user_s, system_s = int(fields[11]) / CLOCK_TICKS_PER_S, int(fields[12]) / CLOCK_TICKS_PER_S
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return Usage(
        cpu_s=user_s + system_s,
        user_s=user_s,
        system_s=system_s,
        rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
        descriptor_count=len(os.listdir(f"/proc/{pid}/fd")),
        thread_count=int(status["Threads"]),
    )


@dataclass
class BrokerProcess:
    """One data directory and the processes that serve it, one after the other."""

    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    command: tuple[str, ...] = (sys.executable, "-m", "kafkalite", "start")
    prefix: tuple[str, ...] = ()
    descriptor_limit: int | None = None
    file_size_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    start_count: int = 0
    ready_s: float = 0.0

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def usage(self) -> Usage:
        return usage_of(self.pid)

    def launch(self, extra_settings: Mapping[str, str] | None = None) -> None:
        """Starts the process without waiting for it."""
        assert not self.alive, "already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        ready_file = self.directory / "ready"
        ready_file.unlink(missing_ok=True)
        limits = limited(descriptors=self.descriptor_limit, file_size=self.file_size_limit)
        arguments = [*limits, *self.prefix, *self.command, "--data-dir", str(self.data_dir)]
        arguments += ["--ready-file", str(ready_file)]
        listener = {"listeners": f"kafka://127.0.0.1:{self.port}"}
        for key, value in {**listener, **self.settings, **(extra_settings or {})}.items():
            arguments += ["--set", f"{key}={value}"]
        python_path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # An installed broker has its byte code; compiling it at each start would be most of the start. Where a
                # file may not grow, Python would leave half of one.
                env={
                    **os.environ,
                    "PYTHONDONTWRITEBYTECODE": "1" if self.file_size_limit else "",
                    "PYTHONPATH": python_path,
                    **self.environment,
                },
            )
        self.start_count += 1

    def start(self, extra_settings: Mapping[str, str] | None = None, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Starts the process and waits until it is ready."""
        began = time.monotonic()
        self.launch(extra_settings)
        self.wait_ready(timeout_s)
        self.ready_s = time.monotonic() - began
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Raises BrokerDidNotStart when the process ends or the time is over before the ready file is there."""
        ready_file = self.directory / "ready"
        deadline = time.monotonic() + timeout_s
        while not ready_file.exists():
            if not self.alive or time.monotonic() > deadline:
                raise BrokerDidNotStart(self.process.poll() if self.process else None, self.log())
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9, and waits until the process is gone."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> float:
        """SIGTERM; returns the seconds it took. A status other than 0, or no end in time, is an error."""
        assert self.process is not None, "not started"
        began = time.monotonic()
        self.process.terminate()
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM had no effect within {timeout_s} s:\n{self.log()[-4000:]}") from None
        assert status == 0, f"clean stop ended with status {status}:\n{self.log()[-4000:]}"
        return time.monotonic() - began

    def close(self) -> None:
        """Close the process in any state."""
        if self.alive:
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextlib.contextmanager
def running(directory: Path, **options: object) -> Iterator[BrokerProcess]:
    """A broker for the length of a with block; killed at its end if the block did not stop it."""
    broker = BrokerProcess(directory, **options)  # type: ignore[arg-type]
    broker.start()
    try:
        yield broker
    finally:
        broker.close()
