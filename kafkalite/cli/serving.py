"""What commands that serve share: start, say where, wait for a signal or a failure, stop; and the flags for it.

    start ─▶ one line on stdout ─▶ the ready file ─▶ … SIGTERM, Ctrl-C or `failed` … ─▶ stop ─▶ the file is gone

The file comes last and is complete when it is there, so whoever waits for it finds the line too.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalite.cli import EXIT_FAILURE
from kafkalite.cli.ending import SIGNALS, Ending

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

LEVELS = ("debug", "info", "warning", "error")


class Serving(Protocol):
    """A broker, a registry: `failed` is set when it cannot go on. Nothing runs before start and after stop."""

    @property
    def failed(self) -> threading.Event: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...


class Ready(NamedTuple):
    """Where a server serves: host:port for the ready file, and the line for people."""

    address: str
    line: str


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """--ready-file, --log-level and --log-format."""
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written with host:port once clients are served"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: text")


def serve(server: Serving, ready: Callable[[], Ready], ready_file: Path | None) -> int:
    """Runs a server until it is told to end or fails; the exit status. `ready` is asked once it serves."""
    with Ending() as ending:
        server.start()
        try:
            threading.Thread(target=_watch, args=(server, ending), name="failure-watch", daemon=True).start()
            address, line = ready()
            print(line)
            sys.stdout.flush()
            if ready_file is not None:
                _write(ready_file, address)
            reason = ending.wait()
        finally:
            server.stop()
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)
    return 0 if reason in SIGNALS else EXIT_FAILURE


def _watch(server: Serving, ending: Ending) -> None:
    """Ends the wait of the main thread when the server cannot go on."""
    server.failed.wait()
    ending.failed()


def _write(ready_file: Path, address: str) -> None:
    temporary = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
    temporary.write_text(f"{address}\n", encoding="utf-8")
    temporary.replace(ready_file)
