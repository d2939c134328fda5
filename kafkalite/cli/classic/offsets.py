"""Show, export, import and change the offsets of 0.7's consumer groups in ZooKeeper (kafka.tools.*)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.classic import wire
from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.progress import CONNECT_TIMEOUT_S, Logs, PartitionProgress, group_progress, topics_of
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.cli import CommandError, UsageError
from kafkalite.cli.classic.common import ZOOKEEPER_DEFAULT, server, session
from kafkalite.cli.common import count, named_file, natural
from kafkalite.cli.output import note, say
from kafkalite.zookeeper import group as nodes
from kafkalite.zookeeper import session as zookeeper
from kafkalite.zookeeper.assignment import java_order
from kafkalite.zookeeper.nodes import CONSUMERS, BrokerPartition, GroupPaths, NodeError, decode_offset

if TYPE_CHECKING:
    import argparse


LABEL_WIDTH: Final = 20
GIB: Final = 1 << 30
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


def offset_checker_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zkconnect", default=ZOOKEEPER_DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--group", required=True)
    parser.add_argument(
        "--topic", metavar="TOPIC,...", help="topics, separated by commas (default: all that the group has read)"
    )


def offset_checker(arguments: argparse.Namespace) -> int:
    """Print a block of lines for each partition, in the format of 0.7.2. The lag is in bytes."""
    with session(arguments.zkconnect) as client:
        paths = GroupPaths(arguments.group)
        topics = sorted(arguments.topic.split(","), key=java_order) if arguments.topic else topics_of(client, paths)
        with Logs(nodes.brokers(client)) as logs:
            for row in group_progress(client, paths, topics, logs):
                _print_block(arguments.group, row)
            say("BROKER INFO")
            for broker_id in logs.asked:
                say(f"{broker_id} -> {logs.brokers[broker_id].host}:{logs.brokers[broker_id].port}")
    return 0


def _print_block(group: str, row: PartitionProgress) -> None:
    if row.failure:
        note(f"{row.topic}-{row.partition}: {row.failure}")
    say(f"{group},{row.topic},{row.partition} (Group,Topic,BrokerId-PartitionId)")
    _print_line("Owner", "null" if row.owner is None else row.owner)
    if row.offset is not None:
        _print_size("Consumer offset", row.offset)
    if row.end is not None:
        _print_size("Log size", row.end)
    if row.lag is not None:
        _print_size("Consumer lag", row.lag)
    say()


def _print_line(label: str, value: str) -> None:
    say(f"{label:>{LABEL_WIDTH}} = {value}")


def _print_size(label: str, value: int) -> None:
    _print_line(label, str(value))
    _print_line("", f"{value:,} ({value / GIB:.2f}G)")


def export_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zkconnect", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--group", action="append", metavar="GROUP", help="consumer group; can be repeated (default: all)"
    )
    parser.add_argument("--output-file", required=True, metavar="FILE")


def export_offsets(arguments: argparse.Namespace) -> int:
    """Write one line for each partition: /consumers/<group>/offsets/<topic>/<broker>-<partition>:<offset>."""
    lines = []
    with session(arguments.zkconnect) as client:
        for name in arguments.group or zookeeper.children(client, CONSUMERS):
            paths = GroupPaths(name)
            for topic in zookeeper.children(client, paths.offsets):
                for partition in zookeeper.children(client, paths.topic_offsets(topic)):
                    path = f"{paths.topic_offsets(topic)}/{partition}"
                    value = zookeeper.read(client, path)
                    if value is not None:
                        lines.append(f"{path}:{value.decode('utf-8', 'replace')}\n")
    if not lines:
        groups = f"group {', '.join(arguments.group)} has" if arguments.group else "there are"
        raise CommandError(f"{groups} no offsets to export; {arguments.output_file} was not written")
    Path(arguments.output_file).write_text("".join(lines), encoding="utf-8")
    note(f"exported {len(lines)} offsets")
    return 0


def import_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zkconnect", default=ZOOKEEPER_DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--input-file", required=True, metavar="FILE", help="file in the format of export-offsets")


def import_offsets(arguments: argparse.Namespace) -> int:
    """Import the lines before the first empty line or the end of the file. If a line is invalid, write nothing."""
    found = []
    with named_file("--input-file", arguments.input_file):
        text = Path(arguments.input_file).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            break
        try:
            found.append(_parse_line(line))
        except ValueError:
            raise UsageError(
                f"{arguments.input_file}, line {number}: expected "
                "/consumers/GROUP/offsets/TOPIC/BROKER-PARTITION:OFFSET"
            ) from None
    if not found:
        raise UsageError(f"{arguments.input_file}: no offset before the end of the file or its first empty line")
    with session(arguments.zkconnect) as client:
        for paths, topic, partition, offset in found:
            nodes.store_offset(client, paths, topic, partition, offset)
    note(f"imported {len(found)} offsets")
    return 0


def _parse_line(line: str) -> tuple[GroupPaths, str, BrokerPartition, int]:
    path, _, value = line.rpartition(":")
    empty, root, group, kind, topic, partition = path.split("/")
    if (empty, root, kind) != ("", "consumers", "offsets"):
        raise NodeError(line)
    return GroupPaths(group), topic, BrokerPartition.parse(partition), decode_offset(value.encode())


def get_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", required=True, metavar="kafka://HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=natural, default=0)
    parser.add_argument(
        "--time",
        type=int,
        required=True,
        metavar="MS",
        help="milliseconds since 1970, -1 for latest or -2 for earliest",
    )
    parser.add_argument("--offsets", type=count, default=1, metavar="N", help="maximum number of offsets (default: 1)")


def get_offsets(arguments: argparse.Namespace) -> int:
    where = server(arguments.server)
    with SimpleConsumer(where.host, where.port) as consumer:
        offsets = consumer.get_offsets_before(arguments.topic, arguments.partition, arguments.time, arguments.offsets)
    say(f"get {len(offsets)} results")
    for offset in offsets:
        say(str(offset))
    return 0


def update_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("where", choices=(EARLIEST, LATEST))
    parser.add_argument("config", metavar="FILE", help="consumer properties: zk.connect and groupid")
    parser.add_argument("topic")


def update_offsets(arguments: argparse.Namespace) -> int:
    config = ConsumerConfig.load(arguments.config)
    if not config.zk_connect:
        raise UsageError(f"{arguments.config}: zk.connect is not set")
    time_ms = wire.EARLIEST if arguments.where == EARLIEST else wire.LATEST
    number = 0
    with session(config.zk_connect) as client:
        brokers = nodes.brokers(client)
        paths = GroupPaths(config.groupid)
        for partition in nodes.partitions(client, arguments.topic):
            broker = brokers.get(partition.broker_id)
            if broker is None:
                raise CommandError(f"broker {partition.broker_id} is not running")
            with SimpleConsumer(broker.host, broker.port, connect_timeout_s=CONNECT_TIMEOUT_S) as consumer:
                (offset,) = consumer.get_offsets_before(arguments.topic, partition.partition, time_ms, 1) or (0,)
            say(f"updating partition {partition} with new offset: {offset}")
            nodes.store_offset(client, paths, arguments.topic, partition, offset)
            number += 1
    if not number:
        raise CommandError(f"no broker has topic {arguments.topic}; no offset was updated")
    say(f"updated the offset for {number} partitions")
    return 0


def verify_rebalance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zk.connect", dest="zkconnect", default=ZOOKEEPER_DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--group", required=True)


def verify_rebalance(arguments: argparse.Namespace) -> int:
    """Print on stderr each partition that has no owner, or whose owner is not running. Return 1 if there are any."""
    with session(arguments.zkconnect) as client:
        paths = GroupPaths(arguments.group)
        threads = nodes.threads_by_topic(client, paths, nodes.topics(client))
        bad = []
        for topic, alive in sorted(threads.items()):
            for partition in nodes.partitions(client, topic):
                owner = nodes.owner(client, paths, topic, partition)
                if owner not in alive:
                    who = "no owner" if owner is None else f"owner {owner}, which is not running"
                    bad.append(f"{topic}-{partition} has {who}")
    if not threads:
        raise UsageError(f"group {arguments.group} has no consumers, so there is nothing to verify")
    for text in bad:
        note(text)
    say(f"Rebalance operation {'failed' if bad else 'successful'} !")
    return 1 if bad else 0
