"""Define the interface of a measured system: what it misses, how it starts, when it is ready, and how it stops.

    missing() ──▶ a sentence: skipped with this sentence          None ──▶ start() ─▶ pids, port_for(driver) ─▶ stop()

`start()` returns when the system has answered the first request of its own protocol. `start_s` is this duration, from
before the process was created. Each process is a child that dies with this one, listens on free ports of 127.0.0.1, and
writes only below its folder. With `synchronous`, the settings make acknowledgements wait for the disk. `settings`
describes them to the reader of the tables.

Thread rule: one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.kit.processes.broker import free_port

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
PROBE_INTERVAL_S = 0.01
PR_SET_PDEATHSIG = 1


class DidNotStart(RuntimeError):
    """The system ended or did not respond. The text quotes the end of its log."""


class System:
    """One server process in a separate folder."""

    name: ClassVar[str]
    title: ClassVar[str]
    remote_port: ClassVar[int]
    synchronous_missing: ClassVar[str] = ""
    """Why there is no synchronous series; empty when there is one."""

    def __init__(self, folder: Path, *, synchronous: bool = False) -> None:
        self.folder = folder
        self.synchronous = synchronous
        self.port = 0
        self.start_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        """Return what must be installed before it can run; empty if nothing is missing."""
        return ""

    @classmethod
    def version(cls) -> str:
        raise LookupError(cls.name)

    @property
    def settings(self) -> str:
        """Return one line with the settings that make it comparable in this mode."""
        raise LookupError(self.name)

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def pids(self) -> Sequence[int]:
        """Return the processes whose CPU and memory count."""
        return [self._process.pid] if self._process else []

    def port_for(self, driver: str) -> int:  # noqa: ARG002  # most systems speak one protocol
        """Return the port for a driver."""
        return self.port

    def start(self) -> None:
        """Start the system. Raises DidNotStart."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.prepare()
        began = time.monotonic()
        self.launch()
        self.wait_ready(began + START_TIMEOUT_S)
        self.start_s = time.monotonic() - began

    def prepare(self) -> None:
        """Write the files that the process needs, before the start time is measured."""

    def launch(self) -> None:
        """Create the process."""
        raise LookupError(self.name)

    def answers(self) -> bool:
        """Return whether it speaks its protocol by now. An OSError means no."""
        raise LookupError(self.name)

    def wait_ready(self, deadline: float) -> None:
        while True:
            if not self.alive:
                raise DidNotStart(f"{self.title} exited during startup: {self.log_end()}")
            with contextlib.suppress(OSError):
                if self.answers():
                    return
            if time.monotonic() > deadline:
                raise DidNotStart(f"{self.title} was not ready within {START_TIMEOUT_S:g} s: {self.log_end()}")
            time.sleep(PROBE_INTERVAL_S)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop it, and delete everything that it wrote."""
        if self._process is not None:
            end(self._process)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def run_program(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Start the system's process in its folder, with output to the file `log` there."""
        self._process = spawn([str(part) for part in command], self.folder, self.folder / "log", environment)

    def log_end(self) -> str:
        """Return the last lines of the log as one line."""
        path = self.folder / "log"
        return " ".join(path.read_text(errors="replace").split())[-1500:] if path.exists() else "no log"


def spawn(command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None) -> subprocess.Popen:
    """Start a child process that dies with this one."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            preexec_fn=_die_with_parent,  # noqa: PLW1509  # one thread here, and the call is one system call
            start_new_session=True,  # an interrupt in the terminal is for us, who then stop it
        )


def end(process: subprocess.Popen) -> None:
    """End a process by SIGTERM, or by SIGKILL if it does not end in time."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(port: int, question: bytes, host: str = "127.0.0.1", size: int = 4096) -> bytes:
    """Send a request; return the first bytes of the response. Raises OSError without one."""
    with socket.create_connection((host, port), timeout=2.0) as connection:
        if question:
            connection.sendall(question)
        return connection.recv(size)


def package_version(package: str) -> str:
    """Return the version of an installed Debian package, or "unknown"."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def java_version() -> str:
    """Return the JVM's version, or "" without one."""
    with contextlib.suppress(OSError, IndexError):
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        return "Java " + (done.stdout + done.stderr).split('"')[1]
    return ""


def which(program: str) -> str | None:
    """Find a program, also in sbin directories, which a user's PATH may lack."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
