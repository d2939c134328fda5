"""Find an event by its id in all topics, and show what each consumer group did with it.

  kafkalite track a-17                                          in all topics; any header, the key, the value
  kafkalite track a-17 --topics 'orders,payments.*' --in header:correlation-id,json:$.order.id
  kafkalite track a-17 --topics 'events.*' --since -2h --groups
  kafkalite track 4711 --in avro:order.id --registry http://127.0.0.1:8081
  kafkalite track a-17 --tracking tracking.toml --follow
  kafkalite track 'a-1[0-9]' --regex --in key --json

--topics takes names, or regular expressions (RE2) that match whole names, separated by commas. Topics that begin with
__ are searched only if you name them.

--in takes header:NAME (header:* is any), key, value (the id as a word), json:PATH ($.order.id, $.items[*].id),
avro:PATH, key-json:PATH and key-avro:PATH, separated by commas. --tracking names a file that lists for each topic where
to search.

--groups shows the state of each record in each group that reads its topic: read, waiting, in retry, or a dead letter
with its reason. The states come from committed offsets, the ledgers of kafkalite.failures, and the headers of dead
letters, also of Spring and Connect. These headers name the original record. So a dead letter is found even if it does
not contain the id.

The search covers the records that exist when it begins. It reports what it could not read: deleted or damaged records,
open transactions, and partitions without a leader or without permission. --follow continues with new records until
Ctrl-C.

--since and --until select records by their timestamps. Records without a timestamp are always included. Timestamps do
not have to be in the order of the offsets, so with --until each partition is still read to its end. A TIME is an ISO
8601 time (UTC by default), a time before now such as -1h or after now such as +5m (units: ms, s, m, h, d, w), or ms
since 1970. A number of ten digits is seconds since 1970.

Exit status: 0 found, 1 not found, 2 could not begin or failed.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.cli import EXIT_FAILURE, EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.common import add_client_arguments, count, open_client, quantity, seconds
from kafkalite.cli.formats import as_json
from kafkalite.cli.output import escaped, note, print_json, print_table, say
from kafkalite.cli.times import moment
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kafkalite.client import Client
    from kafkalite.track import Hit, Reach, Search, Step, Verdict
    from kafkalite.track.front import Inquiry

UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
KEY_SHOWN: Final = 40
REASON_SHOWN: Final = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from kafkalite.track.searches import HITS_MAX, SIZE_MAX, TIME_MAX_S

    parser.add_argument("text", metavar="ID", help="id to search for")
    parser.add_argument("--topics", metavar="NAMES", default=".*", help="topics to search; see above (default: all)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--in",
        dest="places",
        metavar="PLACES",
        help="parts of a record to search; see above (default: header:*,key,value)",
    )
    where.add_argument(
        "--tracking",
        metavar="FILE",
        type=Path,
        help="TOML file that lists, by topic, the parts of a record to search",
    )
    how = parser.add_mutually_exclusive_group()
    for name, text in (
        ("begins", "match values that begin with ID"),
        ("contains", "match values that contain ID"),
        ("regex", "interpret ID as a regular expression (RE2)"),
    ):
        how.add_argument(f"--{name}", dest="how", action="store_const", const=name, help=text)
    parser.add_argument("--not", dest="negated", action="store_true", help="show the records that do not match")
    parser.add_argument("--since", metavar="TIME", type=moment, help="only records from this time on")
    parser.add_argument("--until", metavar="TIME", type=moment, help="only records before this time")
    parser.add_argument("--follow", action="store_true", help="continue with new records after the search")
    parser.add_argument("--groups", action="store_true", help="show the outcome of each record in each group")
    parser.add_argument("--registry", metavar="URL", help="schema registry for avro:PATH and key-avro:PATH")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_committed",
        help="isolation level (default: read_committed)",
    )
    parser.add_argument(
        "--hits-max", metavar="N", type=count, default=HITS_MAX, help=f"stop after this many hits (default: {HITS_MAX})"
    )
    parser.add_argument(
        "--time-max",
        metavar="S",
        type=seconds,
        default=TIME_MAX_S,
        help=f"stop after this many seconds (default: {TIME_MAX_S:g})",
    )
    parser.add_argument(
        "--size-max",
        metavar="BYTES",
        type=byte_count,
        default=SIZE_MAX,
        help="maximum size of the data to read, such as 40g; a larger search is refused "
        f"(default: {quantity(SIZE_MAX, 'B')})",
    )
    parser.add_argument(
        "--workers", metavar="N", type=count, default=0, help="number of threads (default: one per core, at most 8)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show a row for every partition")
    add_client_arguments(parser)


def byte_count(text: str) -> int:
    """Parse a number of bytes, for argparse: 40g → 40000000000."""
    import argparse

    match = re.fullmatch(r"([0-9]{1,18})([kmgt]?)b?", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of bytes; expected one such as 500m or 40g")
    return int(match[1]) * UNITS[match[2]]


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.avro.client import RegistryRefused, RegistryUnreachable

    try:
        inquiry = inquiry_of(arguments)
        with open_client(arguments) as client:
            return track(client, inquiry, arguments)
    except (RegistryRefused, RegistryUnreachable) as error:
        raise CommandError(f"the schema registry: {error}", EXIT_USAGE) from error
    except KafkaError as error:
        raise CommandError(f"{error} ({error.name})", EXIT_USAGE) from error
    except ClientError as error:
        raise CommandError(str(error), EXIT_USAGE) from error


def inquiry_of(arguments: argparse.Namespace) -> Inquiry:
    """Build the search from the flags. UsageError if they are invalid."""
    from kafkalite.track.front import Inquiry
    from kafkalite.track.searches import Limits

    if arguments.follow and arguments.until is not None:
        raise UsageError("--follow and --until cannot be used together")
    try:
        return Inquiry.of(
            arguments.text,
            topics=arguments.topics,
            places=arguments.places,
            tracking=arguments.tracking,
            how=arguments.how or "is",
            negated=arguments.negated,
            since=arguments.since,
            until=arguments.until,
            isolation_level=arguments.isolation,
            registry=arguments.registry,
            limits=Limits(arguments.hits_max, arguments.time_max, arguments.workers),
            size_max=arguments.size_max,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def track(client: Client, inquiry: Inquiry, arguments: argparse.Namespace) -> int:
    """Run the search and print the result. With --follow, continue with new records."""
    from kafkalite.track.front import TooLarge, whole_path
    from kafkalite.track.path import steps_of

    try:
        search = inquiry.search(client)
    except TooLarge as error:
        raise UsageError(
            f"{error}; allow it with --size-max {error.size // 10**9 + 1}g, or read less with --since"
        ) from error
    with search:
        hits = list(search)
    remarks: list[str] = []
    steps = whole_path(client, hits, remarks.append) if arguments.groups else steps_of(hits)
    verdicts, unasked = verdicts_of(client, steps) if arguments.groups else ([], [])
    remarks += unasked
    if arguments.json:
        for document in documents(search, hits, steps, verdicts, remarks):
            print_json(
                document if document["type"] != "summary" else {**document, "isolation_level": arguments.isolation}
            )
    else:
        print_path(steps, verdicts)
        print_reach(search, hits, remarks, verbose=arguments.verbose)
        say(f"isolation level {arguments.isolation}")
    sys.stdout.flush()
    if arguments.follow:
        follow(client, inquiry, search, arguments)
    return 0 if hits else EXIT_FAILURE


def verdicts_of(client: Client, steps: Sequence[Step]) -> tuple[list[Verdict], list[str]]:
    """Return the state of each record in each group, and remarks about groups that could not be read."""
    from kafkalite.track.path import originals
    from kafkalite.track.verdicts import Groups

    found = originals(steps)
    if not found:
        return [], []
    groups = Groups(client, {hit.partition.topic for hit in found})
    return groups.verdicts(steps), groups.remarks


def follow(client: Client, inquiry: Inquiry, search: Search, arguments: argparse.Namespace) -> None:
    """Print new hits until interrupted."""

    def trouble(text: str) -> None:
        note(f"kafkalite: {text}")

    if sys.stderr.isatty():
        note("waiting for new records (stop with Ctrl-C)")
    for hit in inquiry.follow(client, search, trouble=trouble):
        if arguments.json:
            print_json({"type": "hit", **hit_document(hit)})
        else:
            say(f"{time_text(hit.record.timestamp)}  {hit}  {places_text(hit)}  {shown(hit.record.key, KEY_SHOWN)}")
        sys.stdout.flush()


# --- for people -------------------------------------------------------------------------------------------------------


def print_path(steps: Sequence[Step], verdicts: Sequence[Verdict]) -> None:
    """Print two tables: the records by time, and their states in each group."""
    if not steps:
        return
    titles = ["TIME (UTC)", "AFTER", "RECORD", "KEY", "FOUND IN", "DETAILS"]
    rows = [
        [
            time_text(step.hit.record.timestamp),
            "" if number == 0 else duration_text(step.after_ms),
            str(step.hit),
            shown(step.hit.record.key, KEY_SHOWN),
            places_text(step.hit),
            letter_text(step),
        ]
        for number, step in enumerate(steps)
    ]
    print_table(titles, rows)
    if verdicts:
        say()
        print_table(
            ("RECORD", "GROUP", "STATE", "SINCE (UTC)", "WHY"),
            [[row.record, row.group, state_text(row), time_text(row.since), why_text(row)] for row in verdicts],
        )


def letter_text(step: Step) -> str:
    """Return what a record is: a retry, a dead letter or a tombstone; "" for an ordinary record."""
    if step.letter is None:
        return "" if step.hit.record.value is not None else "tombstone"
    letter, reason = step.letter.letter, step.letter.reason
    attempt = f"attempt {letter.attempt}" if letter.attempt else "letter"
    why = f", {reason.exception}" if reason.exception else ""
    return f"{attempt} of {step.origin}{f' in {letter.group}' if letter.group else ''}{why}"


def state_text(row: Verdict) -> str:
    """Format a state. A retry includes the time when it is due."""
    return f"{row.text}, due {time_text(row.due)}" if row.due and row.state == "retrying" else row.text


def why_text(row: Verdict) -> str:
    """Format an exception and its reason in one line."""
    text = ": ".join(part for part in (row.exception, " ".join(row.reason.split())) if part)
    text = text if len(text) <= REASON_SHOWN else f"{text[: REASON_SHOWN - 1]}…"
    return f"{text} ({row.letter})" if text and row.letter else text or row.letter


def print_reach(search: Search, hits: Sequence[Hit], remarks: Sequence[str], *, verbose: bool) -> None:
    """Print how much was searched: one line, and a row for each partition with remarks. With `verbose`, print all
    partitions."""
    rows = search.reach
    if hits:
        say()
    records = sum(row.records for row in rows)
    topics = len({row.topic for row in rows})
    whole = "all read" if search.complete and not search.ended_by else "not all read"
    say(
        f"{len(hits)} {'hit' if len(hits) == 1 else 'hits'} in {records:,} records of {len(rows)} partitions of "
        f"{topics} {'topic' if topics == 1 else 'topics'}, {whole}"
    )
    if search.ended_by:
        say(f"the search ended early: {search.ended_by}")
    for remark in remarks:
        say(remark)
    told = [row for row in rows if verbose or row.remarks()]
    if told:
        say()
        print_table(
            ("PARTITION", "FROM", "TO", "RECORDS", "MARKERS", "REMARKS"),
            [[place_text(row), row.start, row.end, row.records, row.markers, "; ".join(row.remarks())] for row in told],
        )


def place_text(row: Reach) -> str:
    return row.topic if row.partition < 0 else f"{row.topic}-{row.partition}"


def places_text(hit: Hit) -> str:
    return ",".join(map(str, hit.places)) or "-"


def time_text(ms: int) -> str:
    """Format a time as 2026-11-22 19:44:32.123; the number if it is out of range, "-" if there is none."""
    if ms <= 0:
        return "-"
    try:
        moment_there = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return f"{moment_there:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def duration_text(ms: int) -> str:
    """Format a duration with its sign: +1.5 s, +3 min, -20 ms."""
    sign, size = ("-", -ms) if ms < 0 else ("+", ms)
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if size >= length:
            return f"{sign}{size / length:.3g} {unit}"
    return f"{sign}{size} ms"


def shown(raw: bytes | None, length: int) -> str:
    """Format bytes for a terminal: as text if they are UTF-8, otherwise in hexadecimal."""
    if raw is None:
        return "-"
    try:
        text = escaped(raw.decode())
    except UnicodeDecodeError:
        text = f"0x{raw[:length].hex()}"
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --- for programs -----------------------------------------------------------------------------------------------------


def documents(
    search: Search, hits: Sequence[Hit], steps: Sequence[Step], verdicts: Sequence[Verdict], remarks: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the lines of --json: the records found, their states in groups, the partitions, and the summary."""
    found: list[dict[str, Any]] = []
    for step in steps:
        document = {"type": "hit", **hit_document(step.hit), "after_ms": step.after_ms}
        if step.letter is not None:
            letter, reason = step.letter.letter, step.letter.reason
            document["origin"] = step.origin
            document["letter"] = {
                "group": letter.group,
                "attempt": letter.attempt,
                "due": letter.due,
                "redriven": letter.rounds,
                "exception": reason.exception,
                "error": reason.text,
                "family": reason.family,
            }
        found.append(document)
    found += [{"type": "verdict", **row._asdict()} for row in verdicts]
    found += [
        {"type": "partition", **row._asdict(), "complete": row.complete, "remarks": row.remarks()}
        for row in search.reach
    ]
    found.append(
        {
            "type": "summary",
            "hits": len(hits),
            "records": sum(row.records for row in search.reach),
            "complete": search.complete and not search.ended_by,
            "ended_by": search.ended_by,
            "remarks": list(remarks),
        }
    )
    return found


def hit_document(hit: Hit) -> dict[str, Any]:
    """Return a record in the format of `consume --json`, with the places where the id was found."""
    return {**as_json(hit.partition, hit.record), "record": str(hit), "places": [str(place) for place in hit.places]}
