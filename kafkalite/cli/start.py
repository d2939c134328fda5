"""Run a broker until SIGTERM or Ctrl-C.

Settings have Kafka's names. --set overrides the file of --config. --data-dir and --listeners set log.dirs and
listeners.

  kafkalite start
  kafkalite start --config server.properties --set num.partitions=3
  kafkalite start --data-dir ./data --listeners kafka://127.0.0.1:0 --ready-file ready
  kafkalite start --console 127.0.0.1:8090
  kafkalite start --load ./loaded --load-topics 'orders|payments' --load-options='--follow 10'
  kafkalite start --data-dir ./replica --mirror-from live:9092 --mirror-topics 'logs[.].*'

--mirror-from copies topics from another cluster while the broker runs, each record once, as `kafkalite mirror` does.
--mirror-config is a .properties file with MirrorMaker's names (topics, groups, sync.group.offsets.enabled, …) and the
client settings for the source: docs/mirror.md.

--console serves the web console of this broker from a separate process that ends with it: docs/console.md.

--load loads topics into Parquet files every 2 s, as `kafkalite load --follow 2` does, from a separate process that ends
with the broker. It needs pyarrow (the extra `arrow`): docs/load.md.

SIGHUP reloads the certificates of TLS listeners. The broker notifies systemd when it is ready (Type=notify) and
supports its watchdog.

When the broker serves, it prints one line with its address on stdout; the log goes to stderr. A second signal ends it
at once.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import UsageError
from kafkalite.cli.common import SET_HELP
from kafkalite.cli.serving import Ready, add_serving_arguments, beginning, serve, without_collections

if TYPE_CHECKING:
    import argparse

    from kafkalite.broker import Broker, Companion
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.mirror.embedded import EmbeddedMirror
    from kafkalite.settings.broker import BrokerConfig

LISTENERS: Final = "kafka://127.0.0.1:9092,kafka07://127.0.0.1:9072"
"""The default of a standalone broker. An embedded broker has no kafka07 listener. Neither has a broker whose settings
name a ZooKeeper but no listeners: that is a file for later Kafka versions, whose ZooKeeper may be gone.
"""
CONSOLE: Final = "127.0.0.1:8090"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from argparse import SUPPRESS

    parser.add_argument("--config", metavar="FILE", type=Path, help=".properties file with Kafka's settings")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help=SET_HELP)
    parser.add_argument("--data-dir", metavar="DIR", type=directory, help="directory of the logs (log.dirs)")
    parser.add_argument(
        "--listeners",
        metavar="LIST",
        help="addresses to listen on, such as kafka://HOST:PORT,kafka07://HOST:PORT; port 0 selects a free port",
    )
    parser.add_argument("--port", type=no_port, help=SUPPRESS)
    parser.add_argument(
        "--mirror-from", metavar="HOST:PORT", help="copy topics from another cluster; these are its brokers"
    )
    parser.add_argument(
        "--mirror-topics", metavar="REGEX", help="topics to copy; REGEX must match the whole name (default: all)"
    )
    parser.add_argument(
        "--mirror-config", metavar="FILE", type=Path, help=".properties file with settings of the mirror and its source"
    )
    parser.add_argument(
        "--console",
        metavar="HOST:PORT",
        nargs="?",
        const=CONSOLE,
        help=f"serve the web console to this machine only (default address: {CONSOLE})",
    )
    parser.add_argument(
        "--load",
        metavar="DIR",
        help="load topics into Parquet files in this directory; for HDFS, webhdfs://NAMENODE:9870/DIR",
    )
    parser.add_argument(
        "--load-topics", metavar="REGEX", help="topics to load; REGEX must match the whole name (default: all)"
    )
    parser.add_argument(
        "--load-options",
        metavar="OPTIONS",
        help="further options of `kafkalite load` as one quoted argument, such as '--follow 10 --codec gzip'",
    )
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.broker.process import own_process

    own_process()
    with without_collections():
        broker, config = _made(arguments)

    def ready() -> Ready:
        spare_collector(broker.logs)
        servers, classic = broker.bootstrap_servers, broker.classic_endpoint
        where = [f"bootstrap.servers={servers}"] if servers else []
        secured = [listener.name for listener in config.bound_listeners if listener.protocol == "SSL"]
        where += [f"{name} with TLS on {broker.endpoints[name]}" for name in secured]
        where += [f"Kafka 0.7 on {classic}"] if classic else []
        line = f"kafkalite is ready: {', '.join(where)}, data in {config.data_directory}"
        return Ready(servers or str(classic), line)

    return serve(
        broker,
        ready,
        arguments.ready_file,
        broker.reload_certificates,
        give_up_start=broker.give_up_start if config.in_cluster else None,
        progress=lambda: broker.progress,
        turned=broker.loops_turned,
    )


def spare_collector(logs: LogManager) -> None:
    """Exclude the objects loaded so far from garbage collections, which stop all network workers.

    When one of these topics is deleted, all objects are included again: its logs are part of reference cycles and own
    indexes in memory.
    """
    kept = frozenset(logs.topics)

    def thaw(name: str) -> None:
        if name in kept and name not in logs.topics:
            gc.unfreeze()

    logs.topic_listeners.append(thaw)
    gc.freeze()


def _made(arguments: argparse.Namespace) -> tuple[Broker, BrokerConfig]:
    """Load the settings and create the broker, without starting it."""
    from kafkalite.base import logging
    from kafkalite.settings.broker import BrokerConfig

    logging.configure(level=arguments.log_level, json_lines=arguments.log_format == "json")
    overrides = overrides_from(arguments)
    config = BrokerConfig.load(arguments.config, overrides)
    if "listeners" not in config.static_texts and not config.zookeeper_connect and not config.in_cluster:
        config = BrokerConfig.load(arguments.config, {**overrides, "listeners": LISTENERS})
    from kafkalite.broker import Broker

    companions: list[Companion] = [*mirrors_of(arguments, config)]
    if arguments.console is not None:
        from kafkalite.cli.beside import console_beside

        companions.append(console_beside(arguments.console, config.bound_listeners, arguments.log_level))
    if arguments.load is not None:
        from kafkalite.cli.beside import load_beside

        companions.append(load_beside(arguments.load, arguments.load_topics, arguments.load_options, config))
    elif arguments.load_topics is not None or arguments.load_options is not None:
        raise UsageError(f"--load-{'topics' if arguments.load_topics is not None else 'options'} requires --load")
    with beginning():
        return Broker(config, companions=companions), config


def mirrors_of(arguments: argparse.Namespace, config: BrokerConfig) -> list[EmbeddedMirror]:
    """Return the mirrors that the flags select, one or none. Without such flags nothing is imported.

    UsageError, ConfigError or StartupError if the flags are invalid.
    """
    given = {flag: getattr(arguments, flag) for flag in ("mirror_from", "mirror_topics", "mirror_config")}
    if all(value is None for value in given.values()):
        return []
    if arguments.mirror_from is None and arguments.mirror_config is None:
        raise UsageError("--mirror-topics requires --mirror-from")
    from kafkalite.mirror.embedded import EmbeddedMirror, EmbeddedOptions

    options = EmbeddedOptions.load(*given.values())
    if options.target is None and all(each.tls or each.sasl or each.classic for each in config.bound_listeners):
        raise UsageError(
            "the mirror cannot reach this broker: every listener requires TLS or SASL; set the mirror's target.… "
            "settings"
        )
    return [EmbeddedMirror(options)]


def no_port(text: str) -> None:
    """Point a user who expects --port to --listeners, for argparse."""
    import argparse

    raise argparse.ArgumentTypeError(f"unknown option; use --listeners kafka://127.0.0.1:{text}")


def directory(text: str) -> Path:
    """Parse a directory's name, for argparse. An empty name is refused, since it would be the current directory."""
    import argparse

    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(text)


def overrides_from(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings given on the command line. UsageError for a setting without '='."""
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
