"""List and describe transactions, and abort one that hangs.

kafkalite transactions list --state Ongoing
kafkalite transactions describe my-app
kafkalite transactions open --topic orders:0
kafkalite transactions abort --topic orders:0 --start-offset 1234

A transaction hangs if it is open in a partition but not at its coordinator. `abort` writes an abort marker into the
partition. It also aborts a transaction that its producer still uses, so check the producer first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import Parser, UsageError
from kafkalite.cli.common import INT32_MAX, add_client_arguments, natural, open_client
from kafkalite.cli.output import print_json, print_table, say
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    import argparse

    from kafkalite.client import Client

STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"),
)
"""Kafka's state names. For a state that it does not know, a broker returns an empty list."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    listing = actions.add_parser("list", help="list transactional ids")
    listing.add_argument(
        "--state", action="append", default=[], choices=STATES, help="only ids in this state, such as Ongoing"
    )
    listing.add_argument(
        "--older-than", metavar="MS", type=natural, help="only transactions open for more than this many milliseconds"
    )

    describe = actions.add_parser("describe", help="show producer, state, timeout and partitions")
    describe.add_argument("ids", metavar="ID", nargs="*", help="transactional id (default: all)")

    opened = actions.add_parser("open", help="list the open transactions of a partition")
    abort = actions.add_parser("abort", help="abort a hanging transaction of a partition")
    abort.add_argument(
        "--start-offset",
        metavar="OFFSET",
        type=natural,
        required=True,
        help="first offset of the transaction",
    )
    for action in (opened, abort):
        action.add_argument("-t", "--topic", metavar="TOPIC:PARTITION", required=True)
    for action in (listing, describe, opened, abort):
        add_client_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    action = globals()[arguments.action.replace("-", "_") + "_action"]
    with open_client(arguments) as client:
        action(client, arguments)
    return 0


def list_action(client: Client, arguments: argparse.Namespace) -> None:
    older_than_ms = -1 if arguments.older_than is None else arguments.older_than
    rows = client.transactions.list(arguments.state, older_than_ms)
    if arguments.json:
        print_json([row._asdict() for row in rows])
        return
    print_table(("transactional id", "producer id", "state"), rows)


def describe_action(client: Client, arguments: argparse.Namespace) -> None:
    names = arguments.ids or [row.transactional_id for row in client.transactions.list()]
    rows = [client.transactions.describe(name) for name in names]
    if arguments.json:
        print_json([row._asdict() | {"partitions": [key._asdict() for key in row.partitions]} for row in rows])
        return
    titles = ("transactional id", "producer id", "epoch", "state", "timeout ms", "partitions")
    print_table(titles, [(*row[:5], ", ".join(map(str, row.partitions)) or "-") for row in rows])


def open_action(client: Client, arguments: argparse.Namespace) -> None:
    rows = client.transactions.open_in(partition_of(arguments.topic))
    if arguments.json:
        print_json([row._asdict() for row in rows])
        return
    titles = ("start offset", "producer id", "epoch", "coordinator epoch")
    print_table(
        titles, [(row.start_offset, row.producer_id, row.producer_epoch, row.coordinator_epoch) for row in rows]
    )


def abort_action(client: Client, arguments: argparse.Namespace) -> None:
    partition = partition_of(arguments.topic)
    ended = client.transactions.abort(partition, arguments.start_offset)
    if arguments.json:
        print_json({"topic": partition.topic, "partition": partition.partition, **ended._asdict()})
        return
    say(f"aborted the transaction of producer {ended.producer_id} in {partition}")


def partition_of(text: str) -> TopicPartition:
    """Parse TOPIC:PARTITION."""
    name, _, number = text.rpartition(":")
    partition = whole_number(number, 0, INT32_MAX)
    if not name or partition is None:
        raise UsageError(f"{text!r} is not of the form TOPIC:PARTITION")
    return TopicPartition(name, partition)
