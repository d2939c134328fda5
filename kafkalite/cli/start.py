"""Run a broker until SIGTERM or Ctrl-C.

Settings have Kafka's names. They come from the file given with --config, then from --set over it; --data-dir and
--listeners are short for the settings log.dirs and listeners.

  kafkalite start
  kafkalite start --config server.properties --set num.partitions=3
  kafkalite start --data-dir ./data --listeners kafka://127.0.0.1:0 --ready-file ready

One line on stdout says that the broker serves and where; the log goes to stderr. A second signal ends at once.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_FAILURE, UsageError
from kafkalite.cli.ending import SIGNALS, Ending

if TYPE_CHECKING:
    import argparse

    from kafkalite.broker import Broker

LISTENERS = "kafka://127.0.0.1:9092,kafka07://127.0.0.1:9072"
"""What a broker of its own binds unless it is told; an embedded one leaves Kafka 0.7's port out. So does one whose
settings name a ZooKeeper and no listener: that is a file of Kafka's later days, whose ZooKeeper need not be there."""
LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="a .properties file with Kafka's names")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="one setting; may be repeated"
    )
    parser.add_argument("--data-dir", metavar="DIR", type=Path, help="where the logs are kept (log.dirs)")
    parser.add_argument(
        "--listeners", metavar="LIST", help="kafka://HOST:PORT,kafka07://HOST:PORT; port 0 takes a free one"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written with host:port once clients are served"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    from kafkalite import logging
    from kafkalite.config import BrokerConfig

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    overrides = overrides_from(arguments)
    config = BrokerConfig.load(arguments.config, overrides)
    if "listeners" not in config.static_texts and not config.zookeeper_connect:
        config = BrokerConfig.load(arguments.config, {**overrides, "listeners": LISTENERS})
    from kafkalite.broker import Broker

    with Ending() as ending:
        broker = Broker(config).start()
        try:
            threading.Thread(target=watch, args=(broker, ending), name="failure-watch", daemon=True).start()
            announce(broker, config.data_directory, arguments.ready_file)
            reason = ending.wait()
        finally:
            broker.stop()
            if arguments.ready_file is not None:
                arguments.ready_file.unlink(missing_ok=True)
    return 0 if reason in SIGNALS else EXIT_FAILURE


def overrides_from(arguments: argparse.Namespace) -> dict[str, object]:
    """The settings given on the command line; UsageError for one without a '='."""
    overrides: dict[str, object] = {}
    for text in arguments.settings:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set {text}: expected KEY=VALUE")
        overrides[key.strip()] = value
    if arguments.data_dir is not None:
        overrides["log.dirs"] = str(arguments.data_dir)
    if arguments.listeners is not None:
        overrides["listeners"] = arguments.listeners
    return overrides


def watch(broker: Broker, ending: Ending) -> None:
    """Ends the wait of the main thread when the broker cannot go on."""
    broker.failed.wait()
    ending.failed()


def announce(broker: Broker, data_directory: Path, ready_file: Path | None) -> None:
    """The file that scripts wait for, complete when it is there, and then the one line."""
    if ready_file is not None:
        write_ready_file(ready_file, broker.bootstrap_servers)
    classic = broker.classic_endpoint
    also = "" if classic is None else f", Kafka 0.7 on {classic}"
    print(f"kafkalite is ready: bootstrap.servers={broker.bootstrap_servers}{also}, data in {data_directory}")
    sys.stdout.flush()


def write_ready_file(ready_file: Path, address: str) -> None:
    """Complete when it is there."""
    temporary = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
    temporary.write_text(f"{address}\n", encoding="utf-8")
    temporary.replace(ready_file)
