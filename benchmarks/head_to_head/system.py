"""What a system is to a run: it can be missing, starts in an empty folder, says when it is ready, and goes away by pid.

    missing() ──▶ a sentence: skipped by that sentence          None ──▶ start() ─▶ pids, port_for(driver) ─▶ stop()

`start()` returns when the system has answered the first question of its own protocol, and `start_s` is how long that
took from before its process was made. Every process is a child of ours with its death tied to ours, listens on
127.0.0.1 at ports that were free, and keeps everything it writes below its folder. `synchronous` asks for the settings
under which an acknowledgement comes after the disk has the message; `settings` says in the reader's words what was set.

One thread.
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
    """The system ended or stayed silent; the text quotes the end of its log."""


class System:
    """One server process in a folder of its own."""

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
        """What has to be installed before it can run; empty when nothing has."""
        return ""

    @classmethod
    def version(cls) -> str:
        raise LookupError(cls.name)

    @property
    def settings(self) -> str:
        """One line for the reader: what makes it comparable in this mode."""
        raise LookupError(self.name)

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def pids(self) -> Sequence[int]:
        """The processes whose CPU and memory are the system's."""
        return [self._process.pid] if self._process else []

    def port_for(self, driver: str) -> int:  # noqa: ARG002  # most systems speak one protocol
        """Where a driver finds it."""
        return self.port

    def start(self) -> None:
        """Raises DidNotStart."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.prepare()
        began = time.monotonic()
        self.launch()
        self.wait_ready(began + START_TIMEOUT_S)
        self.start_s = time.monotonic() - began

    def prepare(self) -> None:
        """Writes what the process needs, outside of the start time."""

    def launch(self) -> None:
        """Makes the process."""
        raise LookupError(self.name)

    def answers(self) -> bool:
        """Whether it talks its protocol by now; any OSError means that it does not."""
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
        """Gone afterwards, with everything it wrote."""
        if self._process is not None:
            end(self._process)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def run_program(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Starts the system's process in its folder, output to `log` there."""
        self._process = spawn([str(part) for part in command], self.folder, self.folder / "log", environment)

    def log_end(self) -> str:
        """The last lines of the log, on one line."""
        path = self.folder / "log"
        return " ".join(path.read_text(errors="replace").split())[-1500:] if path.exists() else "no log"


def spawn(command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None) -> subprocess.Popen:
    """A child that dies with us."""
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
    """SIGTERM, and SIGKILL when that does not end it in time."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(port: int, question: bytes, host: str = "127.0.0.1", size: int = 4096) -> bytes:
    """The first bytes a server says after this question; OSError when it does not."""
    with socket.create_connection((host, port), timeout=2.0) as connection:
        if question:
            connection.sendall(question)
        return connection.recv(size)


def package_version(package: str) -> str:
    """The version of an installed Debian package, "unknown" elsewhere."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def java_version() -> str:
    """As the JVM says it, "" without one."""
    with contextlib.suppress(OSError, IndexError):
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        return "Java " + (done.stdout + done.stderr).split('"')[1]
    return ""


def which(program: str) -> str | None:
    """A program, system ones included: a user's PATH leaves sbin out."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
