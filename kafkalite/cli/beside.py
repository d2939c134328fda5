"""Run the web console in a child process of the broker, so that a crash of the console cannot affect the broker.

    broker serves ─▶ `kafkalite console` as a child ─ exits? ─▶ restart after a pause, a limited number of times
    broker stops, or is killed ─▶ the pipe on the child's standard input closes ─▶ the child exits

Like a mirror, the console is a companion of the broker (`kafkalite.broker.Companion`). A broker without it does not
import this module. Thread rule: `start` creates one thread, which waits for the child.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.cli import UsageError
from kafkalite.cli.console import address_of
from kafkalite.web.guard import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite.base.metric_families import Family
    from kafkalite.settings.listeners import Listener
    from kafkalite.web.server import Address

logger = logging.getLogger(__name__)

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before successive restarts. After the last one the console is not restarted."""
LONG_LIFE_S: Final = 600.0
"""A console that ran longer starts again with the first pause."""
STOP_S: Final = 5.0
NICENESS: Final = 5
"""The child's nice increment: the broker has priority for the CPU."""
REFUSED: Final = 2
"""The exit status of a usage error. A restart would fail in the same way."""


class ConsoleBeside:
    """A companion that runs the console. `command` replaces the command line, without the broker's address."""

    def __init__(self, address: Address, *, log_level: str = "info", command: Sequence[str] = ()) -> None:
        self._url = address.url
        self._command = list(command) or [sys.executable, "-m", "kafkalite", "console"]
        self._log_level = log_level
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._note = ""

    def start(self, bootstrap_servers: str) -> None:
        """Start the child and its watcher; the broker serves at `bootstrap_servers`."""
        words = ["-b", bootstrap_servers, "--listen", self._url, "--log-level", self._log_level, "--until-stdin-ends"]
        self._thread = threading.Thread(target=self._run, args=(words,), name="console-beside", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the child's standard input, and kill the child after STOP_S. Idempotent."""
        self._stopped.set()
        with self._lock:
            child = self._child
        if child is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]  # it was requested
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def families(self) -> Iterable[Family]:
        """Return no metrics."""
        return ()

    def notes(self) -> list[str]:
        """Report that the console has ended for good, if it has."""
        return [self._note] if self._note else []

    def _run(self, words: list[str]) -> None:
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            status = self._once(words)
            if self._stopped.is_set():
                return
            if time.monotonic() - began > LONG_LIFE_S:
                failures = 0
            if status == REFUSED or failures == len(PAUSES_S):
                self._note = f"the console exited with status {status} and is not restarted; the broker continues"
                logger.error("%s", self._note)
                return
            logger.warning("the console exited with status %d and restarts in %g s", status, PAUSES_S[failures])
            self._stopped.wait(PAUSES_S[failures])
            failures += 1

    def _once(self, words: list[str]) -> int:
        """Run the child once; return its exit status."""
        with self._lock:
            if self._stopped.is_set():
                return 0
            try:
                self._child = subprocess.Popen(
                    [*self._command, *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    process_group=0,  # Ctrl-C is for the broker, which ends both
                )
            except OSError as error:
                logger.warning("cannot start the console: %s", error)
                return REFUSED
            child = self._child
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19))
        assert child.stdout is not None
        line = child.stdout.readline().decode(errors="replace").strip()
        if line:
            logger.info("%s", line)
        with contextlib.suppress(OSError):
            child.stdout.close()
        status = child.wait()
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]  # it was requested
        return status


def console_beside(text: str, listeners: Iterable[Listener], log_level: str) -> ConsoleBeside:
    """Return the companion for --console. UsageError if the address or its listener cannot work."""
    address = address_of(text, "--console")
    if address.scheme != "http" or not is_loopback(address.host):
        raise UsageError(
            f"--console {text}: a broker's console must listen on a loopback address; to serve other machines, "
            "run `kafkalite console` with --users and --tls-config"
        )
    if all(each.tls or each.sasl or each.classic for each in listeners):
        raise UsageError(
            "--console cannot reach this broker: every listener requires TLS or SASL; run `kafkalite console` "
            "with --command-config instead"
        )
    return ConsoleBeside(address, log_level=log_level)
