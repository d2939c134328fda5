"""List, describe, create, delete and change topics.

kafkalite topics create logs --partitions 3 --set retention.ms=86400000
kafkalite topics list
kafkalite topics list --names
kafkalite topics describe logs
kafkalite topics alter logs --set segment.bytes=1048576 --unset retention.ms
kafkalite topics add-partitions logs 6
kafkalite topics delete-records logs --partition 0 --before 1000
kafkalite topics delete logs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.base.numbers import whole_number
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import INT64_MAX, add_client_arguments, assignments, count, natural, open_client
from kafkalite.cli.output import print_json, print_table, say
from kafkalite.errors import ErrorCode, KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition, uuid_text

if TYPE_CHECKING:
    import argparse

    from kafkalite.client import Client, TopicDescription
    from kafkalite.client.read.counting import RecordCount


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    listing = actions.add_parser(
        "list",
        help="list topics with partitions, records and bytes on disk; ≤ marks an upper bound",
    )
    listing.add_argument("--names", action="store_true", help="print names only, one per line")
    listing.add_argument("--internal", action="store_true", help="include internal topics")

    describe = actions.add_parser("describe", help="show partitions, leaders and offsets")
    describe.add_argument("topics", metavar="TOPIC", nargs="*", help="topic (default: all)")

    create = actions.add_parser("create", help="create topics")
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument(
        "-p", "--partitions", type=count, default=-1, help="number of partitions (default: the broker's num.partitions)"
    )
    create.add_argument(
        "--replication-factor",
        type=count,
        default=-1,
        help="number of replicas per partition (default: the broker's default.replication.factor)",
    )
    create.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings")
    create.add_argument("--if-not-exists", action="store_true", help="do not fail if the topic exists")

    delete = actions.add_parser("delete", help="delete topics and their records")
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if the topic does not exist")

    alter = actions.add_parser("alter", help="change settings of a topic")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings")
    alter.add_argument(
        "--unset",
        metavar="KEY",
        action="append",
        default=[],
        help="reset a setting to the broker's value; can be repeated",
    )

    grow = actions.add_parser("add-partitions", help="add partitions to a topic")
    grow.add_argument("topic", metavar="TOPIC")
    grow.add_argument("total", metavar="TOTAL", type=count, help="new number of partitions")

    trim = actions.add_parser("delete-records", help="delete the oldest records of a partition")
    trim.add_argument("topic", metavar="TOPIC")
    trim.add_argument("-p", "--partition", type=natural, required=True)
    trim.add_argument(
        "--before", metavar="OFFSET", required=True, help='first offset to keep, or "end" to delete all records'
    )

    for action in (listing, describe, create, delete, alter, grow, trim):
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    action = globals()[arguments.action.replace("-", "_") + "_action"]
    with open_client(arguments) as client:
        action(client, arguments)
    return 0


def list_action(client: Client, arguments: argparse.Namespace) -> None:
    topics = [topic for topic in client.topics().values() if arguments.internal or not topic.is_internal]
    if arguments.names:
        if arguments.json:
            print_json([topic.name for topic in topics])
            return
        for topic in topics:
            say(topic.name)
        return
    rows = listed(client, topics)
    if arguments.json:
        print_json(rows)
        return
    cells = [
        (row["topic"], row["partitions"], records_text(row), "?" if row["size"] is None else row["size"])
        for row in rows
    ]
    print_table(("topic", "partitions", "records", "size"), cells)


def listed(client: Client, topics: list[TopicDescription]) -> list[dict[str, Any]]:
    """Return each topic with its record count and size, for --json. Both are None if a partition has no leader.

    The size is also None if the broker refuses to report it. `records` is exact. If there are too many records to read,
    it is None, and `records_at_most` is the number of offsets.
    """
    from kafkalite.client.read.counting import count_records

    keys = [
        TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions if part.leader >= 0
    ]
    try:
        sizes = client.admin.partition_sizes(keys)
    except KafkaError as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # without the permission for sizes, the rest is shown
            raise
        sizes = {}
    counts = count_records(client, keys, sizes)
    rows = []
    for topic in topics:
        parts = [TopicPartition(topic.name, part.partition) for part in topic.partitions]
        known = [counts[key] for key in parts if key in counts]
        records = sum_known([counts[key].records if key in counts else None for key in parts])
        exact = all(count.exact for count in known)
        rows.append(
            {
                "topic": topic.name,
                "internal": topic.is_internal,
                "partitions": len(parts),
                "records": records if exact else None,
                **({} if exact or records is None else {"records_at_most": records}),
                "size": sum_known([sizes.get(key) for key in parts]),
            }
        )
    return rows


def records_text(row: dict[str, Any]) -> str:
    """Format a topic's record count: 62, or ≤112 if only the offsets were counted."""
    from kafkalite.client.read.counting import count_text

    if "records_at_most" in row:
        return count_text(row["records_at_most"], exact=False)
    return "?" if row["records"] is None else str(row["records"])


def sum_known(numbers: list[int | None]) -> int | None:
    """Return the sum of the numbers; None if one of them is None."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def describe_action(client: Client, arguments: argparse.Namespace) -> None:
    from kafkalite.client.read.counting import count_records

    named = [client.topic(name) for name in arguments.topics]
    topics = named or list(client.topics().values())
    described = [description(client, topic) for topic in topics]
    if arguments.json:
        print_json(described)
        return
    keys = [
        TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions if part.leader >= 0
    ]
    counts = count_records(client, keys)
    for number, topic in enumerate(described):
        if number:
            say()
        say(f"{topic['topic']}  id {topic['id']}  {len(topic['partitions'])} partitions")
        titles = ("partition", "leader", "replicas", "in sync", "start", "end", "records")
        own = {key.partition: counts[key] for key in keys if key.topic == topic["topic"]}
        print_table(titles, [row_of(row, own.get(row["partition"])) for row in topic["partitions"]])


def description(client: Client, topic: TopicDescription) -> dict[str, Any]:
    """Return the description of one topic for --json."""
    keys = [TopicPartition(topic.name, part.partition) for part in topic.partitions if part.leader >= 0]
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    partitions = []
    for part in topic.partitions:
        key = TopicPartition(topic.name, part.partition)
        partitions.append(
            {
                "partition": part.partition,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "in_sync": list(part.in_sync),
                "start": starts[key].offset if key in starts else None,
                "end": ends[key].offset if key in ends else None,
            }
        )
    return {
        "topic": topic.name,
        "id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": partitions,
    }


def row_of(partition: dict[str, Any], count: RecordCount | None) -> tuple[object, ...]:
    return (
        partition["partition"],
        "none" if count is None else partition["leader"],
        ",".join(map(str, partition["replicas"])),
        ",".join(map(str, partition["in_sync"])),
        *(("?", "?", "?") if count is None else (count.start, count.end, count.text)),
    )


def create_action(client: Client, arguments: argparse.Namespace) -> None:
    configs = assignments("--set", arguments.settings)
    created = []
    for name in arguments.topics:
        try:
            client.admin.create_topic(
                name, arguments.partitions, replication_factor=arguments.replication_factor, configs=configs
            )
        except TopicAlreadyExists:
            if not arguments.if_not_exists:
                raise
            continue
        created.append(name)
    report(arguments, "created", created, "exists already:")


def delete_action(client: Client, arguments: argparse.Namespace) -> None:
    deleted = []
    for name in arguments.topics:
        try:
            client.admin.delete_topic(name)
        except UnknownTopicOrPartition:
            if not arguments.if_exists:
                raise
            continue
        deleted.append(name)
    report(arguments, "deleted", deleted, "does not exist:")


def alter_action(client: Client, arguments: argparse.Namespace) -> None:
    values: dict[str, str | None] = {**assignments("--set", arguments.settings), **dict.fromkeys(arguments.unset)}
    if not values:
        raise UsageError("nothing to change: give --set or --unset")
    client.admin.alter_topic_configs(arguments.topic, values)
    report(arguments, "altered", [arguments.topic])


def add_partitions_action(client: Client, arguments: argparse.Namespace) -> None:
    client.admin.add_partitions(arguments.topic, arguments.total)
    report(arguments, "grown", [arguments.topic])


def delete_records_action(client: Client, arguments: argparse.Namespace) -> None:
    key = TopicPartition(arguments.topic, arguments.partition)
    text = arguments.before
    starts = client.admin.delete_records({key: -1 if text == "end" else offset_of(text)})
    if arguments.json:
        print_json({"topic": key.topic, "partition": key.partition, "start": starts[key]})
    else:
        say(f"{key} starts at {starts[key]}")


def offset_of(text: str) -> int:
    """Parse the offset in --before. UsageError if it is invalid."""
    offset = whole_number(text, 0, INT64_MAX)
    if offset is None:
        raise UsageError(f'--before {text[:40]}: expected an offset or "end"')
    return offset


def report(arguments: argparse.Namespace, done: str, names: list[str], otherwise: str = "") -> None:
    """Print the changed topics. For a named topic that was not changed, print `otherwise`."""
    if arguments.json:
        print_json({done: names})
        return
    for name in arguments.topics if otherwise else names:
        say(f"{done if name in names else otherwise} {name}")
