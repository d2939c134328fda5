"""Run `kafkalite bench`: check its options, measure, print the tables and draw the plots.

The options are defined in `kafkalite/cli/bench.py`, which an installed kafkalite has too.
"""

from __future__ import annotations

import argparse
import signal
import socket
from dataclasses import replace
from pathlib import Path

from benchmarks.head_to_head import plots, report
from benchmarks.head_to_head.plan import SYSTEMS, only, profile
from benchmarks.head_to_head.run import Runner, say
from benchmarks.head_to_head.store import OtherRun, Store
from benchmarks.head_to_head.system import DidNotStart, System
from benchmarks.path.harness import ROOT
from kafkalite.cli import UsageError

DEFAULT_OUT = ROOT / "build" / "bench" / "head_to_head"
CONNECT_TIMEOUT_S = 5.0


class Remote(System):
    """A system that runs elsewhere. It is neither started nor stopped, and nothing is measured on its machine."""

    def __init__(self, kind: type[System], host: str, port: int) -> None:
        super().__init__(Path())
        self.name, self.title = kind.name, f"{kind.title} on {host}"  # type: ignore[misc]
        self._host, self.port = host, port

    @property
    def settings(self) -> str:
        return "as they are there"

    @property
    def host(self) -> str:
        return self._host

    def start(self) -> None:
        try:
            socket.create_connection((self._host, self.port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise DidNotStart(f"cannot connect to {self._host}:{self.port}: {error.strerror or error}") from error

    def stop(self) -> None:
        """Do nothing, because the system was not started here."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns exit status 1 if a measurement failed."""
    if arguments.show:
        return show(arguments.show)
    store = Store((arguments.out or DEFAULT_OUT).resolve())
    runner = make_runner(arguments, store)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is stopped
    try:
        runner.run()
    except OtherRun as error:
        raise UsageError(f"{error}; leave out --resume to start over") from error
    except KeyboardInterrupt:
        say(f"interrupted; {store.folder} has the results so far, --resume continues")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    results = report.Results.load(store.folder)
    print(report.render(results, report.text))
    print(f"rows: {store.folder}")
    if not arguments.no_plots:
        try:
            for path in plots.draw(results, store.folder):
                print(f"plot: {path}")
        except plots.NoMatplotlib as error:
            say(f"no plots: {error}")
    return 1 if results.failures() else 0


def make_runner(arguments: argparse.Namespace, store: Store) -> Runner:
    """Return the runner for these options. Raises UsageError if they contradict each other."""
    chosen = profile(arguments.profile)
    if arguments.repeats is not None:
        if arguments.repeats < 1:
            raise UsageError("--repeats must be at least 1")
        chosen = replace(chosen, repeat_count=arguments.repeats)
    if arguments.only is not None:
        try:
            chosen = only(chosen, [name.strip() for name in arguments.only.split(",")])
        except ValueError as error:
            raise UsageError(f"--only: {error}") from error
    names = parse_systems(arguments.systems) or (["kafkalite"] if arguments.remote else list(SYSTEMS))
    options = {"systems": names, "repeats": chosen.repeat_count, "remote": arguments.remote or ""}
    if arguments.only is not None:
        options["only"] = arguments.only
    if not arguments.remote:
        return Runner(chosen, names, store, options, resume=arguments.resume)
    if len(names) != 1:
        raise UsageError("--remote measures one system; set it with --systems")
    if arguments.resume:
        raise UsageError("--remote cannot be combined with --resume: the topics on that host are unknown")
    host, port = parse_remote(arguments.remote, SYSTEMS[names[0]].remote_port)
    chosen = replace(chosen, cases=[case for case in chosen.cases if not case.series.startswith("classic")])
    return Runner(chosen, names, store, options, make=lambda kind, _, __: Remote(kind, host, port), remote=True)


def parse_systems(text: str | None) -> list[str]:
    """Return the systems' names in the order of the tables."""
    if text is None:
        return []
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := sorted(names - set(SYSTEMS)):
        raise UsageError(f"unknown system {', '.join(unknown)}; choose from {', '.join(SYSTEMS)}")
    if not names:
        raise UsageError("--systems is empty")
    return [name for name in SYSTEMS if name in names]


def parse_remote(text: str, default_port: int) -> tuple[str, int]:
    """Parse HOST, HOST:PORT or [IPV6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--remote {text!r} is not HOST or HOST:PORT")
    return host, int(port)


def show(folder: Path) -> int:
    """Print the tables of an existing run."""
    try:
        print(report.render(report.Results.load(folder), report.text))
    except (OSError, ValueError, KeyError) as error:
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise UsageError(f"{folder} has no run of kafkalite bench ({why})") from error
    return 0
