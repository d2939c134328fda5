"""Compare kafkalite with RabbitMQ, ActiveMQ, Apache Kafka, NATS JetStream and Redis on this machine.

kafkalite bench                          under 30 minutes: the Kafka paper's tests, latency, start, memory, fsync
kafkalite bench --quick                  under 2 minutes, one repeat: a quick test
kafkalite bench --systems kafkalite,apache-kafka --out results
kafkalite bench --full --resume --out results
kafkalite bench --only produce-one-50,consume-bare       these cases
kafkalite bench --show results           the tables of an earlier run

The command needs a clone of the repository, which contains the load programs. It skips systems that are not installed,
and prints their names; `make bench` installs them first. Method: docs/benchmarks.md.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kafkalite
from kafkalite.cli import CommandError
from kafkalite.cli.run import WAITED_FOR, run_to_end

if TYPE_CHECKING:
    import argparse

CLONE: Final = Path(kafkalite.__file__).resolve().parent.parent
PROGRAM: Final = "benchmarks.head_to_head"
"""The program in the clone that is run with these options. No module of the package imports it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    for name, what in (
        ("quick", "run the producer and consumer tests, shortened, once"),
        ("full", "add message sizes, several clients, simultaneous load and backlogs; five repeats"),
        ("paper", "run the Kafka paper's test with 10,000,000 messages, once"),
    ):
        size.add_argument(f"--{name}", dest="profile", action="store_const", const=name, default="default", help=what)
    parser.add_argument(
        "--systems",
        metavar="NAME,...",
        help="systems to measure, separated by commas (default: all that are installed)",
    )
    parser.add_argument(
        "--remote",
        metavar="HOST[:PORT]",
        help="measure a running broker at this address; name its type with --systems, such as apache-kafka",
    )
    parser.add_argument(
        "--only", metavar="CASE,...", help="cases to run, separated by commas; the progress display prints their names"
    )
    parser.add_argument("--repeats", metavar="N", type=int, help="number of repeats")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="directory for the results (default: build/bench/head_to_head)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run whose results are in --out")
    parser.add_argument("--no-plots", action="store_true", help="draw no charts")
    parser.add_argument("--show", metavar="DIR", type=Path, help="measure nothing; print the tables of the run in DIR")


def run(arguments: argparse.Namespace) -> int:
    if not (CLONE / PROGRAM.replace(".", "/")).exists():
        raise CommandError(
            "the installed package does not contain the benchmarks; clone the repository and run `make bench` or "
            "`kafkalite bench` there",
            status=2,
        )
    path = os.pathsep.join(filter(None, [str(CLONE), os.environ.get("PYTHONPATH")]))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    try:
        return run_to_end([sys.executable, "-m", PROGRAM, *options(arguments)], {**os.environ, "PYTHONPATH": path})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def options(arguments: argparse.Namespace) -> list[str]:
    """Convert the parsed flags to the options of a run."""
    words = [] if arguments.profile == "default" else [f"--{arguments.profile}"]
    for name in ("systems", "remote", "only", "repeats", "out", "show"):
        value = getattr(arguments, name)
        if value is not None:
            words.append(f"--{name}={value}")
    return words + ["--resume"] * arguments.resume + ["--no-plots"] * arguments.no_plots
