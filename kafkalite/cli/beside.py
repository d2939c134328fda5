"""Run a command of kafkalite in a child process of the broker, so that its crash cannot affect the broker.

    broker serves ─▶ `kafkalite console` or `kafkalite load` as a child
    the child exits ─▶ restart after a pause, a limited number of times
    broker stops, or is killed ─▶ the pipe on the child's standard input closes ─▶ the child exits

Such a command is a companion of the broker (`kafkalite.broker.Companion`): it starts and stops with the broker.

Thread rule: `start` creates one thread, which waits for the child.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import EXIT_USAGE, UsageError, command_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from kafkalite.base.metric_families import Family
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.settings.listeners import Listener

logger = logging.getLogger(__name__)

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before successive restarts. After the last one the child is not restarted."""
LONG_LIFE_S: Final = 600.0
"""A child that ran longer starts again with the first pause."""
STOP_S: Final = 5.0
LOAD_STOP_S: Final = 20.0
"""A load finishes its commit of about 1 GiB."""
NICENESS: Final = 5
"""The child's nice increment: the broker has priority for the CPU."""
NOTE: Final = "kafkalite: "
"""How a command begins a line on stderr."""
OF_START: Final = {
    "action": "a subcommand",
    "target": "--to",
    "names": "--topic",
    "topics": "--topics",
    "bootstrap_server": "--bootstrap-server",
    "command_config": "--command-config",
    "compact": "--compact",
    "master": "--master",
    "remote": "--remote",
    "conf": "--conf",
    "spark_log": "--spark-log",
}
"""Option of `kafkalite load` → flag, for options that --load-options rejects: --load sets them or does not use them."""
FOLLOW_S: Final = 2


class CommandBeside:
    """A companion that runs a command as a child of the broker.

    words      the command's name and flags, without the broker's address
    final      exit statuses after which a restart would fail in the same way
    stop_s     seconds that the child has to stop
    gathers    log the child's stderr, and report its last line as the reason of a failure. Otherwise the child writes
               to the broker's stderr
    program    the command line before the words
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        final: Container[int] = (),
        stop_s: float = STOP_S,
        gathers: bool = False,
        program: Sequence[str] = (sys.executable, "-m", "kafkalite"),
    ) -> None:
        self._name = f"the {words[0]}"
        self._words = [*program, *words]
        self._final = final
        self._stop_s = stop_s
        self._stderr = subprocess.STDOUT if gathers else None
        self._reason = ""
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._note = ""

    def start(self, bootstrap_servers: str) -> None:
        """Start the child, and a thread that watches it. `bootstrap_servers` is the broker's address."""
        words = [*self._words, "-b", bootstrap_servers, "--until-stdin-ends"]
        self._thread = threading.Thread(target=self._run, args=(words,), name="command-beside", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the child's standard input. Kill the child if it does not exit in time. Idempotent."""
        self._stopped.set()
        with self._lock:
            child = self._child
        if child is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]  # it was requested
            try:
                child.wait(self._stop_s)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def families(self) -> Iterable[Family]:
        """Return no metrics, since the child serves none through the broker."""
        return ()

    def notes(self) -> list[str]:
        """Return a note for the broker's health page if the child has ended and is not restarted."""
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
            exited = f"{self._name} exited with status {status}"
            if self._reason and status > 0:
                exited += f" ({self._reason})"
            if status in self._final or failures == len(PAUSES_S):
                self._note = f"{exited} and is not restarted; the broker continues"
                logger.error("%s", self._note)
                return
            logger.warning("%s and restarts in %g s", exited, PAUSES_S[failures])
            self._stopped.wait(PAUSES_S[failures])
            failures += 1

    def _once(self, words: list[str]) -> int:
        """Run the child once, and return its exit status."""
        with self._lock:
            if self._stopped.is_set():
                return 0
            try:
                self._child = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    process_group=0,  # Ctrl-C is for the broker, which ends both
                )
            except OSError as error:
                logger.warning("cannot start %s: %s", self._name, error)
                return EXIT_USAGE
            child = self._child
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19))
        self._log_lines(child)
        status = child.wait()
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]  # it was requested
        return status

    def _log_lines(self, child: subprocess.Popen[bytes]) -> None:
        """Log the lines that the child prints, until it exits."""
        self._reason = ""
        assert child.stdout is not None
        with child.stdout:
            for row in child.stdout:
                line = row.decode(errors="replace").strip()
                if line.startswith(NOTE):
                    logger.warning("%s: %s", self._name, line.removeprefix(NOTE))
                elif line:
                    logger.info("%s", line)
                if line and self._stderr is not None:
                    self._reason = line.removeprefix(NOTE)


def console_beside(text: str, listeners: Iterable[Listener], log_level: str) -> CommandBeside:
    """Return the companion for --console. UsageError if its address or the broker's listeners cannot be used."""
    from kafkalite.cli.console import address_of
    from kafkalite.web.guard import is_loopback

    address = address_of(text, "--console")
    if address.scheme != "http" or not is_loopback(address.host):
        raise UsageError(
            f"--console {text}: a broker's console must listen on a loopback address; to serve other machines, "
            "run `kafkalite console` with --users and --tls-config"
        )
    require_listener("--console", listeners)
    return CommandBeside(["console", "--listen", address.url, "--log-level", log_level], final=(EXIT_USAGE,))


def load_beside(directory: str, topics: str | None, options: str | None, config: BrokerConfig) -> CommandBeside:
    """Return the companion for --load, --load-topics and --load-options. UsageError if their values cannot be used."""
    from kafkalite.cli.load import check_not_a_file, check_pattern, check_target
    from kafkalite.client.columns.arrow import require_pyarrow
    from kafkalite.load.webhdfs import is_webhdfs

    require_listener("--load", config.bound_listeners)
    if not directory:
        raise UsageError("--load must not be empty")
    check_target("--load", directory)
    check_not_a_file("--load", directory)
    for folder in {*map(str, config.log_dirs), str(config.data_directory)}:
        if not is_webhdfs(directory) and Path(directory).resolve().is_relative_to(Path(folder).resolve()):
            raise UsageError(f"--load {directory}: must not be in the data directory {folder}")
    check_pattern("--load-topics", topics)
    try:
        words = load_words(directory, ".*" if topics is None else topics, shlex.split(options or ""))
    except (UsageError, ValueError) as error:
        raise UsageError(f"--load-options: {error}") from error
    try:
        require_pyarrow()
    except ImportError as error:
        raise UsageError(f"--load: {error}") from error
    return CommandBeside(["load", *words], stop_s=LOAD_STOP_S, gathers=True)


def load_words(directory: str, topics: str, options: list[str]) -> list[str]:
    """Return the arguments of `kafkalite load` for --load. UsageError for options that cannot be used."""
    from kafkalite.cli.load import check
    from kafkalite.cli.load_engines import NATIVE, engine_for

    _, parser = command_of("load")
    given = parser.parse_args(options)
    for name, flag in OF_START.items():
        if getattr(given, name) != parser.get_default(name):
            raise UsageError(f"{flag} cannot be used with --load")
    if given.engine not in {None, NATIVE}:
        raise UsageError(f"--engine {given.engine} cannot be used with --load")
    words = [*options, "--quiet", f"--engine={NATIVE}", f"--to={directory}", f"--topics={topics}"]
    if given.follow is None:
        words.append(f"--follow={FOLLOW_S}")
    arguments = parser.parse_args(words)
    check(arguments)
    engine_for(arguments)
    return words


def require_listener(flag: str, listeners: Iterable[Listener]) -> None:
    """Raise UsageError if every listener requires TLS or SASL. The message names `flag` and its command."""
    if all(each.tls or each.sasl or each.classic for each in listeners):
        raise UsageError(
            f"{flag} cannot reach this broker: every listener requires TLS or SASL; run "
            f"`kafkalite {flag.removeprefix('--')}` with --command-config instead"
        )
