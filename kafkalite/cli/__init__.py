"""Run the `kafkalite` command: find the subcommand, run it, and turn failures into one sentence and an exit status.

    0    done                                    2    cannot begin: bad flag or configuration, broker not reachable
    1    failed on the way                       130  interrupted

Each command is a module of this package with `add_arguments(parser)` and `run(arguments)`. Only the requested module is
imported, because `kafkalite start` has to be quick.

Results go to stdout, everything else to stderr. Commands write only through `kafkalite.cli.output`, which escapes
characters that a terminal would interpret.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafkalite.cli.output import STDOUT, guard_streams, note, say, write_text
from kafkalite.client.errors import BrokerGone, BrokerUnreachable, ClientError, SignInRefused
from kafkalite.errors import ControllersAway, KafkaError, StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COMMANDS: Final = {
    "start": "run a broker",
    "run": "run a command with a temporary broker, for tests and CI",
    "topics": "list, describe, create, delete and change topics",
    "configs": "describe and change settings of topics and brokers",
    "acls": "add, remove and list ACLs",
    "users": "add, list and delete SCRAM users",
    "quotas": "list, set and delete client quotas",
    "cluster": "describe a cluster, move partitions, retire brokers, migrate a standalone broker",
    "groups": "list, describe and delete consumer groups, reset their offsets",
    "transactions": "list and describe transactions, abort hanging ones",
    "produce": "send lines to a topic",
    "consume": "print the records of a topic",
    "query": "query topics with SQL",
    "track": "find an event by its id in all topics",
    "mirror": "copy topics from another cluster, exactly once",
    "audit": "verify that every message sent has arrived",
    "failures": "run a handler with retries, dead letters and alarms",
    "letters": "list, show, redrive and resolve dead letters",
    "load": "load topics into Parquet files, exactly once",
    "registry": "run a schema registry",
    "console": "serve the web console of a cluster",
    "web": "manage users of the HTTP services: registry, metrics, console",
    "classic": "run the tools of Kafka 0.7",
    "top": "watch a broker: request rates, throughput, lag of groups",
    "metrics": "print a Grafana dashboard or Prometheus alert rules",
    "ping": "check that the broker on this machine responds",
    "check": "check whether this machine is suitable for a broker",
    "backup": "back up a data directory, even while the broker runs",
    "restore": "restore a data directory from a backup",
    "log": "show, check and repair log files without a broker",
    "bench": "benchmark against other brokers on this machine",
    "settings": "list all settings of brokers and topics",
    "completion": "print a completion script for your shell",
    "version": "print the version and the installation path",
}
"""Name → what it does, as --help shows them; each is the module of that name in this package."""

STDERR: Final = 2
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
INVALID_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
"""argparse's error for an unknown subcommand or choice."""
VALUE_LIKE_A_FLAG: Final = re.compile(r"-\.?[0-9]")


class CommandError(Exception):
    """A failure of a command, with the message for stderr and the exit status."""

    def __init__(self, message: str, status: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.status = status


class UsageError(CommandError):
    """A failure before a command begins, because of its arguments or configuration. The exit status is 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence, without the usage text.

    argparse is used because it loads three times as fast as the alternatives.

    argparse itself looks up the terminal's width for each argument that is added. For that it imports `shutil`, which
    imports compression modules. This class looks up the width only for `--help`.
    """

    def __init__(
        self, *args: object, formatter_class: type[argparse.HelpFormatter] = argparse.HelpFormatter, **kwargs: object
    ) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs["formatter_class"] = functools.partial(formatter_class, width=80)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # argparse's own parameters
        self._help_formatter = formatter_class
        # A word that looks like a negative number is a value, not a flag. A time such as -1h is a value, too.
        self._negative_number_matcher = VALUE_LIKE_A_FLAG

    def format_help(self) -> str:
        self.formatter_class = self._help_formatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        invalid = INVALID_CHOICE.search(message)
        if invalid is not None:
            message += did_you_mean(invalid[1], re.findall(r"[^\s,']+", invalid[2]))
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    open_standard_streams()
    guard_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)
    return reported(lambda: execute(given))


def reported(command: Callable[[], int]) -> int:
    """Run the command and return its exit status. Report a failure on stderr in one sentence.

    If the reader of stdout has exited (`| head`), nothing is reported.
    """
    try:
        status = command()
        sys.stdout.flush()
    except CommandError as error:
        return fail(str(error), error.status)
    except StartupError as error:
        return fail(str(error), EXIT_FAILURE if isinstance(error, ControllersAway) else EXIT_USAGE)
    except KafkaError as error:
        return fail(f"{error} ({error.name})", EXIT_FAILURE)
    except (BrokerUnreachable, SignInRefused) as error:
        return fail(str(error), EXIT_FAILURE if isinstance(error, BrokerGone) else EXIT_USAGE)
    except ClientError as error:
        return fail(str(error), EXIT_FAILURE)
    except BrokenPipeError:
        leave_broken_pipe()
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        return fail(sentence(error), EXIT_FAILURE)
    return status


def execute(arguments: list[str]) -> int:
    """Parse the arguments, run the command and return its exit status. `reported` handles the exceptions."""
    name = arguments[0] if arguments else "--help"
    if name in COMMANDS:
        module, parser = command_of(name)
        try:
            parsed = parser.parse_args(arguments[1:])
        except SystemExit as done:  # --help
            return int(done.code or 0)
        status: int = module.run(parsed)
        return status
    if name in {"-h", "--help", "help"}:
        write_text(f"{overview()}\n")
        return 0 if arguments else EXIT_USAGE
    if name in {"-V", "--version"}:
        from kafkalite.version import VERSION

        say(f"kafkalite {VERSION}")
        return 0
    raise UsageError(f"unknown command {name!r}{did_you_mean(name, COMMANDS)}; see kafkalite --help")


def command_of(name: str) -> tuple[Any, Parser]:
    """Import a command's module. Return the module and the parser of its arguments."""
    module = importlib.import_module(f"kafkalite.cli.{name}")
    parser = Parser(prog=f"kafkalite {name}", description=module.__doc__, formatter_class=Formatter)
    module.add_arguments(parser)
    return module, parser


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ", did you mean 'X'" with the closest known word, or "" if none is close."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]!r}" if close else ""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps the layout of a description. Descriptions are the docstrings of the commands."""

    def __init__(self, prog: str, width: int | None = None) -> None:
        super().__init__(prog, max_help_position=32, width=width)


def overview() -> str:
    """Return the text of `kafkalite --help`."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    after = "`kafkalite COMMAND --help` describes a command; -V prints only the version."
    return f"usage: kafkalite COMMAND [OPTION ...]\n\n{rows}\n\n{after}"


def fail(message: str, status: int) -> int:
    """Print a sentence on stderr. Return the status."""
    note(f"kafkalite: {' '.join(message.split())}")
    return status


def sentence(error: OSError) -> str:
    """Return a sentence about an OSError: the system's message and the file."""
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def open_standard_streams() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next socket or file would get this number, and output for the terminal would be written into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # as long as the process


def leave_broken_pipe() -> None:
    """Redirect stdout to /dev/null, since Python flushes stdout once more at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)
