"""Run a server for a command: start it, publish its address, wait for a signal or a failure, and stop it.

    start ─▶ the ready file ─▶ one line on stdout ─▶ … SIGTERM, Ctrl-C or `failed` … ─▶ stop ─▶ remove the file

The ready file is renamed into place before the line is printed, so a program that waits for the line finds the complete
file. Under systemd (NOTIFY_SOCKET) the service manager is notified of each step.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalite.base.ending import SIGNALS, Ending
from kafkalite.cli import EXIT_FAILURE, UsageError, leave_broken_pipe, sentence
from kafkalite.cli.output import say
from kafkalite.errors import StartGivenUp

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from kafkalite.cli.service_manager import ServiceManager

LEVELS: Final = ("debug", "info", "warning", "error")
OWN_THREADS: Final = "kafkalite-"
"""Prefix of the names of threads that a server depends on."""

logger = logging.getLogger(__name__)


class Serving(Protocol):
    """A server, such as a broker. It sets `failed` when it cannot continue.

    It has no thread before `start` and after `stop`.
    """

    @property
    def failed(self) -> threading.Event: ...

    def start(self) -> object: ...

    def stop(self, reason: str) -> object: ...


class Ready(NamedTuple):
    """The address of a server: host:port for the ready file, and the line for stdout."""

    address: str
    line: str


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --ready-file, --log-level and --log-format."""
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="file to write host:port to as soon as clients are served"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="log level (default: info)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format (default: text)")


def serve(
    server: Serving,
    ready: Callable[[], Ready],
    ready_file: Path | None,
    reload: Callable[[], object] | None = None,
    *,
    give_up_start: Callable[[], object] | None = None,
    progress: Callable[[], str] | None = None,
    turned: Callable[[], threading.Event] | None = None,
) -> int:
    """Run a server until a signal or a failure. Return the exit status.

    `ready` is called once the server serves. `reload` is called on SIGHUP; without it SIGHUP ends the process, as
    usual. `give_up_start` is called if a signal arrives while the start waits for other processes: the start then
    raises StartGivenUp, and the status is 0. `progress` and `turned` are for `kafkalite.cli.service_manager`.

    UsageError if the server cannot start, or if the ready file cannot be written; the started server is then stopped.
    """
    published, why = False, "it could not start"
    with contextlib.ExitStack() as around:
        around.enter_context(ended_by_dead_threads(server))
        manager = _service_manager(around, progress, turned)
        ending = around.enter_context(Ending(told=() if reload is None else (signal.SIGHUP,)))
        try:
            with beginning(), ending.meanwhile(give_up_start) if give_up_start else contextlib.nullcontext():
                server.start()
        except StartGivenUp:
            return 0
        try:
            threading.Thread(target=_watch, args=(server, ending), name="failure-watch", daemon=True).start()
            address, line = ready()
            if ready_file is not None:
                _publish(ready_file, address)
                published = True
            if manager is not None:
                manager.ready(line)
            _say(line)
            while (reason := ending.wait()) == signal.SIGHUP and reload is not None:
                if manager is not None:
                    manager.reloading()
                reload()
                if manager is not None:
                    manager.ready(line)
            why = signal.Signals(reason).name if reason else "it cannot continue"
        finally:
            if manager is not None:
                manager.stopping()
            server.stop(why)
            if ready_file is not None and published:
                ready_file.unlink(missing_ok=True)
    return 0 if reason in SIGNALS else EXIT_FAILURE


def _service_manager(
    around: contextlib.ExitStack, progress: Callable[[], str] | None, turned: Callable[[], threading.Event] | None
) -> ServiceManager | None:
    """Return the object that notifies the service manager of this process; None without a service manager.

    `around` closes it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    from kafkalite.cli import service_manager

    watchdog_s = service_manager.watchdog_seconds(os.environ)
    return around.enter_context(
        service_manager.ServiceManager(address, watchdog_s=watchdog_s, progress=progress, turned=turned)
    )


@contextlib.contextmanager
def ended_by_dead_threads(server: Serving) -> Iterator[None]:
    """Mark the server as failed if an uncaught exception ends one of its threads. Otherwise other threads would wait
    for it forever."""
    before = threading.excepthook

    def died(what: threading.ExceptHookArgs) -> None:
        before(what)
        if what.thread is not None and what.thread.name.startswith(OWN_THREADS):
            logger.critical("the thread %s died: %s", what.thread.name, what.exc_type.__name__)
            server.failed.set()

    threading.excepthook = died
    try:
        yield
    finally:
        threading.excepthook = before


def _watch(server: Serving, ending: Ending) -> None:
    """Wake the main thread when the server fails."""
    server.failed.wait()
    ending.failed()


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Turn an OSError in the `with` block, which creates and starts a server, into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot start: {sentence(error)}") from error


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disable the garbage collector during a `with` block with imports, and exclude the imported modules from it
    afterwards.

    During imports the collector would scan the modules about a hundred times, which takes a tenth of the start time.
    The exclusion shortens the collector's pauses in a running broker.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _say(line: str) -> None:
    """Print the line on stdout. The server continues if stdout is closed."""
    try:
        say(line, flush=True)
    except OSError:
        leave_broken_pipe()


def _publish(ready_file: Path, address: str) -> None:
    """Write the address to a temporary file, and rename it to the ready file. UsageError if this fails."""
    temporary = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
    try:
        if ready_file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.write_text(f"{address}\n", encoding="utf-8")
        temporary.replace(ready_file)
    except OSError as error:
        raise UsageError(f"--ready-file {ready_file}: {error.strerror}") from error
