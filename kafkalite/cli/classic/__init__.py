"""Run the tools of Kafka 0.7: console producer and consumer, performance tests, and offsets in ZooKeeper.

kafkalite classic console-producer --zookeeper 127.0.0.1:2181 --topic events
kafkalite classic console-consumer --zookeeper 127.0.0.1:2181 --topic events --from-beginning
kafkalite classic offset-checker --zkconnect 127.0.0.1:2181 --group reports

Options and output are those of 0.7; `kafkalite classic TOOL --help` lists them. A bad option ends the command with one
sentence and status 2.
"""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Final

from kafkalite.classic.errors import ClassicError, InvalidConfig, Unreachable
from kafkalite.cli import CommandError, Formatter, Parser, UsageError, did_you_mean
from kafkalite.zookeeper.session import ZooKeeperError

if TYPE_CHECKING:
    from types import ModuleType

TOOLS: Final = {
    "console-producer": ("console", "send the lines of standard input to a topic"),
    "console-consumer": ("console", "print the messages of topics"),
    "producer-shell": ("shells", "send lines of standard input, configured by a properties file"),
    "consumer-shell": ("shells", "print a group's messages, configured by a properties file"),
    "simple-consumer-shell": ("shells", "print the messages of one partition of one broker"),
    "offset-checker": ("offsets", "print owner, offset and lag of a group's partitions"),
    "export-offsets": ("offsets", "export the offsets of groups to a file"),
    "import-offsets": ("offsets", "import the offsets of groups from a file"),
    "get-offsets": ("offsets", "print the offsets of a partition before a time"),
    "update-offsets": ("offsets", "reset a group's offsets to the earliest or latest"),
    "verify-rebalance": ("offsets", "verify that a live consumer owns every partition of a group"),
    "replay": ("copies", "copy the messages of a topic to another topic"),
    "mirror": ("copies", "copy topics from other clusters"),
    "producer-perf": ("perf", "measure producer throughput"),
    "consumer-perf": ("perf", "measure consumer throughput of a group"),
    "simple-consumer-perf": ("perf", "measure fetch throughput of one partition"),
}
"""Tool → (module here, what it does). A module has `<tool>_arguments(parser)` and `<tool>(arguments) -> int`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, TOOLS))
    parser.epilog = "tools:\n" + "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in TOOLS.items())
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument("rest", metavar="OPTION", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    name = arguments.tool
    if name not in TOOLS:
        raise UsageError(f"unknown tool {name!r}{did_you_mean(name, TOOLS)}; see kafkalite classic --help")
    module_name, text = TOOLS[name]
    module: ModuleType = importlib.import_module(f"kafkalite.cli.classic.{module_name}")
    function = name.replace("-", "_")
    parser = Parser(prog=f"kafkalite classic {name}", description=text, formatter_class=Formatter)
    getattr(module, f"{function}_arguments")(parser)
    try:
        parsed = parser.parse_args(arguments.rest)
    except SystemExit as done:  # --help
        return int(done.code or 0)
    try:
        status: int = getattr(module, function)(parsed)
    except (InvalidConfig, Unreachable) as error:
        raise UsageError(str(error)) from error
    except ClassicError as error:
        raise CommandError(str(error)) from error
    except ZooKeeperError as error:
        raise CommandError(f"ZooKeeper: {error or type(error).__name__}") from error
    return status
