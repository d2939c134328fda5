"""Run a command with a temporary broker, which stops when the command ends.

  kafkalite run -- pytest -q
  kafkalite run --topic orders:3 --topic audit -- ./integration-tests.sh
  kafkalite run --registry --set num.partitions=4 -- npm test

The broker listens on a free port of 127.0.0.1. The command's environment has its address as KAFKA_BOOTSTRAP_SERVERS and
BOOTSTRAP_SERVERS. With --registry the environment also has the schema registry's address as SCHEMA_REGISTRY_URL.
Without --data-dir, the data is in a temporary directory and acks=all does not wait for the disk.

Signals are forwarded to the command. The exit status is the command's: 128 + N if signal N ended it, 127 if it was not
found, 126 if it cannot be run. The status is 2 if the broker cannot start, and 1 if the broker failed while the command
ran but the command returned 0.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import EXIT_FAILURE, UsageError, fail
from kafkalite.cli.common import INT32_MAX, SET_HELP
from kafkalite.cli.serving import LEVELS, beginning
from kafkalite.cli.start import directory, overrides_from

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kafkalite.broker import Broker

ADDRESS_NAMES: Final = ("KAFKA_BOOTSTRAP_SERVERS", "BOOTSTRAP_SERVERS")
REGISTRY_NAME: Final = "SCHEMA_REGISTRY_URL"
LISTENERS: Final = "kafka://127.0.0.1:0"
EXIT_NOT_FOUND: Final = 127
EXIT_NOT_RUN: Final = 126
FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
WAITED_FOR: Final = {*FORWARDED, signal.SIGCHLD}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        metavar="NAME[:PARTITIONS]",
        action="append",
        default=[],
        help="create this topic before the command starts; can be repeated",
    )
    parser.add_argument("--registry", action="store_true", help="also start a schema registry")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help=SET_HELP)
    parser.add_argument("--data-dir", metavar="DIR", type=directory, help="directory of the logs (log.dirs)")
    parser.add_argument("--listeners", metavar="LIST", help=f"listeners of the broker (default: {LISTENERS})")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="log level of the broker (default: warning)"
    )
    parser.add_argument("command", metavar="CMD", nargs="+", help="after --: the command and its arguments")


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.base import logging

    logging.configure(level=arguments.log_level, json_lines=False)
    topics = [parse_topic(text) for text in arguments.topic]
    given = overrides_from(arguments)
    settings: dict[str, object] = {"listeners": LISTENERS, **given}
    if not {"log.dirs", "log.dir"} & given.keys():
        settings.setdefault("flush.on.acks.all", False)
    # Block the signals before any thread exists: all threads inherit the mask, so only this thread receives them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    try:
        from kafkalite.broker import Broker

        with contextlib.ExitStack() as running:
            with beginning():
                broker = running.enter_context(Broker(settings))
            for name, partitions in topics:
                if name not in broker.logs.topics:
                    broker.create_topic(name, partitions)
            environment = dict.fromkeys(ADDRESS_NAMES, broker.bootstrap_servers)
            if arguments.registry:
                environment[REGISTRY_NAME] = _start_registry(running, broker)
            status = run_to_end(arguments.command, {**os.environ, **environment})
            if broker.failed.is_set():
                return fail("the broker failed while the command ran", status or EXIT_FAILURE)
            return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parse_topic(text: str) -> tuple[str, int]:
    """Parse NAME or NAME:PARTITIONS. (Topic names contain no colon.)"""
    name, separator, number = text.partition(":")
    partitions = whole_number(number, 1, INT32_MAX) if separator else 1
    if not name or partitions is None:
        raise UsageError(f"--topic {text}: expected NAME or NAME:PARTITIONS")
    return name, partitions


def _start_registry(running: contextlib.ExitStack, broker: Broker) -> str:
    from kafkalite.schema_registry.server import RegistryServer

    return running.enter_context(RegistryServer(broker.bootstrap_servers, port=0)).url


def run_to_end(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command, forward signals to it, and return its exit status.

    The caller has blocked the signals WAITED_FOR in every thread.
    """
    sys.stdout.flush()
    try:
        child = os.posix_spawnp(
            command[0],
            list(command),
            environment,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these; a command expects the defaults
        )
    except FileNotFoundError:
        return fail(f"command not found: {command[0]}", EXIT_NOT_FOUND)
    except OSError as error:
        return fail(f"cannot run {command[0]}: {error.strerror}", EXIT_NOT_RUN)
    while True:
        came = signal.sigwaitinfo(WAITED_FOR)
        if came.si_signo == signal.SIGCHLD:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        elif came.si_code <= 0:  # sent by a process; the command itself receives the terminal's signals
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, came.si_signo)
