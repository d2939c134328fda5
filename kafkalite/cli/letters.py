"""List, show, redrive and resolve dead letters: those of kafkalite, Spring, Connect, Streams and share groups.

kafkalite letters list billing --exception ValueError
kafkalite letters count billing
kafkalite letters show billing orders-3-1842
kafkalite letters redrive billing --day 2026-11-22 --yes
kafkalite letters redrive connect-sink --topic dlq-of-the-sink --yes
kafkalite letters redrive billing --patch fixed.json --yes
kafkalite letters resolve billing 2026-11-22
kafkalite letters skip billing orders-3-1842
kafkalite letters tombstone orders-3-1842
kafkalite letters check --policy billing.toml

A dead letter is a record that a group has given up on, stored with the reason. `redrive` sends dead letters to the
group's retry topic to be processed again, so no other group sees the records twice. A dead letter of another system
goes to the topic that its headers name. Without --yes, `redrive` only counts dead letters. If `redrive` is killed
and run again, it still sends each dead letter once.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.cli import CommandError, Parser, UsageError
from kafkalite.cli.common import add_client_arguments, count, open_client, say_isolation, seconds
from kafkalite.cli.output import note, print_json, print_table, say, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.client import Client
    from kafkalite.failures.events import Message
    from kafkalite.failures.letters import Entry, LetterBox

SHOWN: Final = 60
SEVERAL_LINES: Final = {"stack", "value"}
"""Fields that keep their line ends. The lines after the first are indented, so that none looks like a field."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    listing = actions.add_parser("list", help="list dead letters that are not resolved")
    listing.add_argument("--all", action="store_true", help="include redriven, processed and resolved dead letters")
    counting = actions.add_parser("count", help="count dead letters that are not resolved, by exception and day")
    show = actions.add_parser("show", help="print the reason and content of each dead letter of a record, oldest first")
    redrive = actions.add_parser("redrive", help="send dead letters back to be processed again")
    add_redrive_arguments(redrive)
    resolve = actions.add_parser("resolve", help="mark the dead letters of a day or of one record as resolved")
    skip = actions.add_parser("skip", help="make the group skip a record, even one that it has not read yet")
    skip.add_argument("--reason", metavar="TEXT", default="", help="reason to record in the ledger")
    skip.add_argument("--yes", action="store_true", help="skip the record; without --yes, only show what would happen")
    for action in (listing, counting, show, redrive, resolve):
        action.add_argument("group", metavar="GROUP")
        action.add_argument(
            "-t", "--topic", metavar="TOPIC", help="dead-letter topic (default: all topics of the group's dead letters)"
        )
    skip.add_argument("group", metavar="GROUP")
    skip.add_argument("record", metavar="RECORD", help="TOPIC-PARTITION-OFFSET of the record")
    for action in (listing, counting, redrive):
        action.add_argument(
            "--exception",
            metavar="NAME",
            help="only dead letters with this exception class, such as ValueError or shop.OutOfStock",
        )
        action.add_argument(
            "--day", metavar="DATE", type=day, help="only dead letters of this UTC day, such as 2026-11-22"
        )
        action.add_argument("--key", metavar="KEY", help="only dead letters with this key")
        action.add_argument("--first", metavar="N", type=count, help="maximum number of dead letters")
    show.add_argument("record", metavar="RECORD", help="TOPIC-PARTITION-OFFSET of the record")
    resolve.add_argument(
        "what", metavar="DATE|RECORD", help="UTC day, such as 2026-11-22, or a record, such as orders-3-1842"
    )
    bury = actions.add_parser(
        "tombstone",
        help="write a tombstone for a record's key in a compacted topic, unless a newer record has this key",
    )
    bury.add_argument("record", metavar="RECORD")
    bury.add_argument(
        "--yes", action="store_true", help="write the tombstone; without it, only show what would be deleted"
    )
    check = actions.add_parser("check", help="check that the cluster has what a policy needs; changes nothing")
    check.add_argument("--policy", metavar="FILE", type=Path, required=True)
    for action in (listing, counting, show, redrive, resolve, skip, bury, check):
        add_client_arguments(action)


def add_redrive_arguments(redrive: argparse.ArgumentParser) -> None:
    """Add the flags for a redrive's target, edits and limits."""
    redrive.add_argument("--yes", action="store_true", help="send the dead letters; without it, only count them")
    redrive.add_argument(
        "--to",
        choices=("retry", "main"),
        default="retry",
        help=(
            "topic to send to: retry (the group's retry topic) or main (the source topic, from which every group "
            "reads the records again) (default: retry)"
        ),
    )
    redrive.add_argument("--edit", action="store_true", help="open each value in $EDITOR before sending it")
    redrive.add_argument(
        "--patch", metavar="FILE", type=Path, help="file with a JSON Patch (RFC 6902) to apply to each value"
    )
    redrive.add_argument(
        "--edit-with",
        metavar="MODULE:FUNCTION",
        help="function that takes a record, and returns its new value or a new record",
    )
    redrive.add_argument(
        "--rate", metavar="N", type=seconds, help="maximum number of dead letters per second (default: unlimited)"
    )
    redrive.add_argument(
        "--delay",
        metavar="DURATION",
        type=duration,
        default="0 s",
        help="time until the group handles the records again, such as '10 min' (default: 0 s)",
    )
    redrive.add_argument(
        "--rounds",
        metavar="N",
        type=count,
        default=3,
        help="maximum number of redrives of one record (default: 3)",
    )


def run(arguments: argparse.Namespace) -> int:
    action: Callable[[Client, argparse.Namespace], int] = globals()[f"{arguments.action}_action"]
    with open_client(arguments) as client:
        status = action(client, arguments)
    if not status:
        say_isolation("read_committed")
    return status


def day(text: str) -> str:
    """Parse a day such as 2026-11-22, for argparse."""
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; expected one such as 2026-11-22") from None


def box_of(client: Client, arguments: argparse.Namespace) -> LetterBox:
    from kafkalite.failures.letters import LetterBox

    box = LetterBox(client, arguments.group, arguments.topic)
    if not box.has_topics():
        raise CommandError(f"group {arguments.group} has no dead-letter topic; name one with --topic")
    return box


def chosen(arguments: argparse.Namespace) -> Callable[[Entry], bool]:
    """Return the filter for the dead letters that the flags select."""
    from kafkalite.failures.letters import Choice

    everything = getattr(arguments, "all", False)
    return Choice(arguments.exception, arguments.day, arguments.key, arguments.first, everything).keep()


def described(entry: Entry) -> dict[str, Any]:
    letter, reason = entry.found.letter, entry.found.reason
    return {
        "record": entry.origin,
        "state": entry.state,
        "letter": f"{entry.partition}-{entry.message.offset}",
        "day": entry.day,
        "group": letter.group,
        "failures": letter.attempt,
        "redriven": letter.rounds,
        "exception": reason.exception,
        "cause": reason.cause,
        "error": reason.text,
        "family": reason.family,
    }


def list_action(client: Client, arguments: argparse.Namespace) -> int:
    entries = list(box_of(client, arguments).entries(chosen(arguments)))
    if arguments.json:
        for entry in entries:
            print_json(described(entry))
        return 0
    titles = ("RECORD", "STATE", "DAY", "FAILURES", "EXCEPTION", "ERROR")
    fields = [described(entry) for entry in entries]
    rows = [[row[title.lower()] for title in titles[:-1]] + [" ".join(row["error"].split())[:SHOWN]] for row in fields]
    print_table(titles, rows)
    return 0


def count_action(client: Client, arguments: argparse.Namespace) -> int:
    entries = box_of(client, arguments).entries(chosen(arguments))
    counts = Counter((entry.found.reason.exception, entry.day) for entry in entries)
    if arguments.json:
        for (exception, day), number in sorted(counts.items()):
            print_json({"exception": exception, "day": day, "letters": number})
        return 0
    print_table(("EXCEPTION", "DAY", "DEAD LETTERS"), [(*about, number) for about, number in sorted(counts.items())])
    return 0


def show_action(client: Client, arguments: argparse.Namespace) -> int:
    box = box_of(client, arguments)
    entries = [entry for entry in box.entries() if entry.origin == arguments.record]
    if not entries:
        raise CommandError(f"record {arguments.record} has no dead letter")
    entries.sort(key=lambda entry: (entry.message.timestamp, entry.partition, entry.message.offset))
    for number, entry in enumerate(entries, 1):
        message = box.original(entry)
        headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
        texts = {
            "stack": entry.found.reason.stack,
            "key": None if message.key is None else message.key.decode(errors="replace"),
            "value": None if message.value is None else message.value.decode(errors="replace"),
            "headers": headers,
        }
        if arguments.json:
            print_json({**described(entry), **texts})
        else:
            if len(entries) > 1:
                separator = "\n" if number > 1 else ""
                write_text(f"{separator}dead letter {number} of {len(entries)}, oldest first\n")
            for name, value in {**described(entry), **texts}.items():
                if name in SEVERAL_LINES:
                    write_text(f"{name}: {value}".replace("\n", "\n  ") + "\n")
                else:
                    say(f"{name}: {value}")
    return 0


def duration(text: str) -> str:
    """Parse a duration such as "10 min", for argparse."""
    from kafkalite.failures.times import milliseconds

    try:
        milliseconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def redrive_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.failures.edits import NotEdited
    from kafkalite.failures.letters import DelayRefused

    edit = edit_of(arguments)
    box = box_of(client, arguments)
    keep = chosen(arguments)
    if not arguments.yes:
        counts = Counter(entry.found.reason.exception for entry in box.entries(keep) if entry.state == "dead")
        if arguments.json:
            print_json({"would_send": counts.total(), "exceptions": dict(counts)})
            return 0
        print_table(("EXCEPTION", "DEAD LETTERS"), counts.most_common())
        say(f"{counts.total()} dead letters would be sent; add --yes to send them")
        return 0
    if arguments.to == "main":
        note(f"kafkalite: every group that reads the topics of {arguments.group} will read the records again")
    try:
        done = box.redrive(
            keep,
            to_main=arguments.to == "main",
            edit=edit,
            rounds_max=arguments.rounds,
            rate=arguments.rate,
            delay=arguments.delay,
        )
    except NotEdited as error:
        raise CommandError(str(error)) from error
    except DelayRefused as error:
        raise UsageError(str(error)) from error
    if arguments.json:
        print_json(done._asdict())
    else:
        often = (
            f"; {done.too_often} were already redriven {arguments.rounds} times and were not sent"
            if done.too_often
            else ""
        )
        say(f"{done.sent} {'dead letter was' if done.sent == 1 else 'dead letters were'} sent{often}")
    return 0


def edit_of(arguments: argparse.Namespace) -> Callable[[Message], Message] | None:
    """Return the function that edits each record of a redrive; None if no flag asks for edits.

    UsageError for an invalid edit.
    """
    from kafkalite.failures.edits import function_edit, parse_patch, patch_edit
    from kafkalite.failures.policy_file import named

    if sum((arguments.edit, arguments.patch is not None, arguments.edit_with is not None)) > 1:
        raise UsageError("--edit, --patch and --edit-with cannot be used together")
    try:
        if arguments.patch is not None:
            return patch_edit(parse_patch(arguments.patch.read_bytes()))
        if arguments.edit_with is not None:
            sys.path.insert(0, str(Path.cwd()))
            return function_edit(named(arguments.edit_with))
    except OSError as error:
        raise UsageError(f"{arguments.patch}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error
    return editor_edit(os.environ.get("EDITOR", "")) if arguments.edit else None


def editor_edit(editor: str) -> Callable[[Message], Message]:
    """Return a function that opens a record's value in an editor, the value of $EDITOR. UsageError if there is none.

    The function raises NotEdited if the editor fails. A value that the editor leaves as it is stays the same, even a
    null value, which the editor shows as an empty file.
    """
    from kafkalite.failures.edits import NotEdited

    try:
        words = shlex.split(editor)
    except ValueError as error:
        raise UsageError(f"$EDITOR {editor}: {error}") from error
    if not words:
        raise UsageError("--edit requires $EDITOR to be set")
    if shutil.which(words[0]) is None:
        raise UsageError(f"$EDITOR {editor}: there is no program {words[0]!r}")

    def edit(message: Message) -> Message:
        before = message.value or b""
        with tempfile.NamedTemporaryFile(suffix=".value") as file:
            file.write(before)
            file.flush()
            status = subprocess.run([*words, file.name], check=False).returncode
            after = Path(file.name).read_bytes()
        if status:
            where = f"{message.topic}-{message.partition}-{message.offset}"
            ended = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
            raise NotEdited(f"dead letter {where}: the editor {words[0]} {ended}")
        return message if after == before else message._replace(value=after)

    return edit


def resolve_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.failures.names import parse_origin

    what = arguments.what
    try:
        what = day(what)
    except argparse.ArgumentTypeError:
        try:
            parse_origin(what)
        except ValueError as error:
            raise UsageError(
                f"{what!r} is neither a date such as 2026-11-22 nor a record such as orders-3-1842"
            ) from error
    done = box_of(client, arguments).resolve(what, getpass.getuser())
    if arguments.json:
        starts = {str(place): offset for place, offset in done.starts.items()}
        print_json({**done._asdict(), "starts": starts})
    else:
        report = f"resolved {done.letters} dead letters of {len(done.records)} records"
        say(f"{report if done.records else 'nothing was resolved'}; {done.left} dead letters are left")
        print_table(("PARTITION", "BEGINS AT"), done.starts.items())
    return 0


def skip_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.failures.letters import may_skip, skip
    from kafkalite.failures.names import parse_origin

    try:
        where, offset = parse_origin(arguments.record)
    except ValueError as error:
        raise UsageError(str(error)) from error
    why_not, state = may_skip(client, arguments.group, where, offset)
    if why_not:
        raise CommandError(why_not)
    if not arguments.yes:
        say(
            f"{arguments.group} would skip {arguments.record}, which is {state}; add --yes to record this in its ledger"
        )
        return 0
    skip(client, arguments.group, where, offset, arguments.reason or f"by {getpass.getuser()}")
    say(f"{arguments.group} skips {arguments.record} from its next start")
    return 0


def tombstone_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.failures.letters import may_bury
    from kafkalite.failures.names import parse_origin
    from kafkalite.wire.record.columns import Record

    try:
        where, offset = parse_origin(arguments.record)
    except ValueError as error:
        raise UsageError(str(error)) from error
    looked = may_bury(client, where, offset)
    if looked.why_not:
        raise CommandError(looked.why_not)
    if not arguments.yes:
        say(f"a tombstone would delete every record with key {looked.key!r} from {where}; add --yes to write it")
        return 0
    delivery = client.produce(where.topic, where.partition, [Record(-1, -1, looked.key, None)])
    behind = may_bury(client, where, offset).newer
    if behind is not None and behind < delivery.first_offset:
        note(f"kafkalite: the tombstone also deletes the record at offset {behind}, which was written in the meantime")
    say(f"wrote a tombstone at offset {delivery.first_offset} of {where}")
    return 0


def check_action(client: Client, arguments: argparse.Namespace) -> int:
    from kafkalite.failures.policy_file import load_policy
    from kafkalite.failures.topics import faults

    found = list(faults(load_policy(arguments.policy), client))
    if arguments.json:
        print_json(found)
    else:
        for line in found or ["no problems found"]:
            say(line)
    return 1 if found else 0
