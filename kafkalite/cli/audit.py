"""Compare what producers have sent with what brokers and loaded files have: nothing missing, nothing twice.

  kafkalite audit --live live:9092
  kafkalite audit --live live:9092 --offline offline:9092 --mirror offline --loaded /data/loaded --since -1d
  kafkalite audit --live live:9092 --consumer billing --mark-field clicks=audit

Producers of `kafkalite.audit` put a mark into a header of each message, and send counts to the topic kafkalite.audit,
which is read from the live broker. Each stage that is named is compared with them, by topic, server, and window of the
messages' own time; windows that are still open are not judged. Marks may stand in a field of the payload, too: of JSON
objects, or of Avro records, with a registry or a schema.

  missing      a producer has counted it, the stage does not have it
  duplicated   it is there more than once
  unreported   it is there, and nobody has counted it: its producer died, or has yet to report

A TIME is ISO 8601 (UTC unless it says), -1h (ms, s, m, h, d, w before now), or ms since 1970.

Exit status 0: every stage has every message once; 1: there are differences; 2: nothing could be compared, because
of what a broker refuses too, or no window was judged.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_USAGE, CommandError, UsageError, sentence
from kafkalite.cli.common import Progress, add_config_argument, print_json, print_table, seconds, security_from
from kafkalite.cli.times import moment
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite.audit.fields import MarkFields
    from kafkalite.audit.judge import Difference
    from kafkalite.audit.run import Plan, Report
    from kafkalite.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--live", metavar="HOST:PORT", required=True, help="brokers that producers send to")
    add_config_argument(parser, "--live-config", " for these")
    parser.add_argument("--offline", metavar="HOST:PORT", help="brokers that a mirror copies to")
    parser.add_argument("--mirror", metavar="NAME", help="judge what this mirror says it has copied, too")
    parser.add_argument(
        "--loaded",
        metavar="[NAME=]DIR",
        action="append",
        default=[],
        help="files of `kafkalite load`, as a stage of this name (default: loaded); may be repeated",
    )
    parser.add_argument(
        "--consumer",
        metavar="STAGE",
        action="append",
        default=[],
        help="what these consumers have reported, as a stage; may be repeated",
    )
    parser.add_argument(
        "--topics", metavar="REGEX", default=".*", help="what a topic's whole name matches (default: all)"
    )
    parser.add_argument("--counts", metavar="TOPIC", help="of producers' counts (default: kafkalite.audit)")
    parser.add_argument(
        "--mark-field",
        metavar="[TOPIC=]FIELD",
        action="append",
        default=[],
        help="marks are in this field of payloads, of one topic or all; may be repeated",
    )
    parser.add_argument("--registry", metavar="URL", help="of the Avro schemas of such payloads")
    parser.add_argument(
        "--mark-schema",
        metavar="[TOPIC=]FILE",
        action="append",
        default=[],
        help="payloads are Avro records of this schema, without a registry's id; may be repeated",
    )
    parser.add_argument("--since", metavar="TIME", type=moment, help="first window")
    parser.add_argument("--until", metavar="TIME", type=moment, help="end of the last window")
    parser.add_argument(
        "--grace", metavar="S", type=grace, default=60.0, help="how long a window is open after its end (default: 60)"
    )
    add_config_argument(parser, "--offline-config", " for --offline")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=30.0, help="for one answer (default: 30)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")


def grace(text: str) -> float:
    """Seconds from 0 on, for argparse."""
    return 0.0 if text == "0" else seconds(text)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.audit.run import run_audit

    shown = False if arguments.quiet else None
    lines: dict[str, Progress] = {}

    def on_progress(stage: str, rows: int) -> None:
        lines.setdefault(stage, Progress(f"{stage}: read", shown=shown)).update(rows, 0)

    with contextlib.ExitStack() as stack, refusals():
        report = run_audit(plan_of(arguments, stack), on_progress)
    show(report, as_json=arguments.json)
    if not report.verdict.window_count:
        raise CommandError(nothing_judged(report), status=EXIT_USAGE)
    return 0 if report.verdict.complete else 1


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What keeps an audit from comparing is told in a sentence, with the status that says nothing is known."""
    from kafkalite.audit.stages import NothingToCompare
    from kafkalite.avro.client import RegistryRefused, RegistryUnreachable

    try:
        yield
    except NothingToCompare as error:
        raise UsageError(str(error)) from error
    except KafkaError as error:  # of no stage is known what it lacks, so no status that says there are differences
        raise CommandError(f"{error} ({error.name})", EXIT_USAGE) from error
    except (ClientError, RegistryRefused, RegistryUnreachable) as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    except OSError as error:
        raise CommandError(sentence(error), EXIT_USAGE) from error


def plan_of(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Plan:
    """What the flags ask for, its clients closed with `stack`. UsageError for what cannot be."""
    from kafkalite.audit.events import AUDIT_TOPIC
    from kafkalite.audit.run import Plan

    try:
        pattern = re.compile(arguments.topics)
    except re.error as error:
        raise UsageError(f"--topics: {error}") from error
    if arguments.mirror is not None and arguments.offline is None:
        raise UsageError("--mirror needs --offline, where a mirror keeps its progress")
    loaded = loaded_stages(arguments.loaded)
    fields = mark_fields(arguments, stack)
    live = stack.enter_context(open_client("--live", arguments.live, arguments.live_config, arguments))
    offline = None
    if arguments.offline is not None:
        offline = stack.enter_context(open_client("--offline", arguments.offline, arguments.offline_config, arguments))
    return Plan(
        live,
        offline,
        arguments.mirror,
        loaded,
        arguments.counts or AUDIT_TOPIC,
        consumer_stages(arguments.consumer, loaded),
        fields,
        pattern,
        arguments.since,
        arguments.until,
        arguments.grace,
    )


def consumer_stages(names: Sequence[str], loaded: Mapping[str, str]) -> tuple[str, ...]:
    """Names of stages of consumers. UsageError for one that another stage has."""
    for at, name in enumerate(names):
        if name in {"", "live", "mirror", "offline", *loaded, *names[:at]}:
            raise UsageError(f"--consumer {name}: there is a stage {name!r} already")
    return tuple(names)


def mark_fields(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> MarkFields | None:
    """Where marks are in payloads, None when nowhere. UsageError for flags that contradict each other."""
    fields = by_topic("--mark-field", arguments.mark_field)
    files = by_topic("--mark-schema", arguments.mark_schema)
    if not fields:
        if files or arguments.registry is not None:
            flag = "--registry" if arguments.registry is not None else "--mark-schema"
            raise UsageError(f"{flag} needs --mark-field, which says where marks are")
        return None
    from kafkalite.audit.fields import MarkFields
    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import SchemaError, parse

    schemas = {}
    for topic, file in files.items():
        try:
            schemas[topic] = parse(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--mark-schema {file}: {sentence(error)}") from error
        except (SchemaError, UnicodeDecodeError) as error:
            raise UsageError(f"--mark-schema {file}: {error}") from error
    registry = None
    if arguments.registry is not None:
        timeout_s = arguments.timeout
        try:
            client = RegistryClient(arguments.registry, timeout_s=min(timeout_s, 10.0), retry_timeout_s=timeout_s)
        except ValueError as error:
            raise UsageError(f"--registry: {error}") from error
        registry = stack.enter_context(client)
    if (schemas or registry is not None) and importlib.util.find_spec("pyarrow") is None:
        raise UsageError("Avro needs pyarrow: pip install 'kafkalite[avro]'")
    return MarkFields(fields, registry=registry, schemas=schemas)


def by_topic(flag: str, texts: Sequence[str]) -> dict[str | None, str]:
    """[TOPIC=]VALUE, repeated: by topic, None for all. UsageError."""
    found: dict[str | None, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        topic, value = (name, value) if separator and "/" not in name else (None, text)
        if not value or topic == "" or topic in found:
            raise UsageError(f"{flag} {text}: expected [TOPIC=]VALUE, once a topic")
        found[topic] = value
    return found


def loaded_stages(texts: Sequence[str]) -> dict[str, str]:
    """Directory by stage. UsageError for a name that another stage has, and for a URL."""
    from kafkalite.load.places import refuse_url
    from kafkalite.load.storage import LoadError

    found: dict[str, str] = {}
    for text in texts:
        name, separator, folder = text.partition("=")
        if not separator or "/" in name:
            name, folder = "loaded", text
        if name in found or name in {"", "live", "mirror", "offline"}:
            raise UsageError(f"--loaded {text}: there is a stage {name!r} already, so give another NAME=DIR")
        try:
            refuse_url(folder)
        except LoadError as error:
            raise UsageError(f"--loaded {error}") from error
        found[name] = folder
    return found


def open_client(flag: str, servers: str, config: str | None, arguments: argparse.Namespace) -> Client:
    """UsageError for addresses that are none."""
    from kafkalite.client import Client

    try:
        return Client(
            servers,
            client_id="kafkalite-audit",
            connect_timeout_s=min(arguments.timeout, 10.0),
            request_timeout_s=arguments.timeout,
            retry_timeout_s=arguments.timeout,
            security=security_from(config),
        )
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


# --- what is printed --------------------------------------------------------------------------------------------------


def show(report: Report, *, as_json: bool) -> None:
    """The verdict for people, or all of it as JSON."""
    for note in report.notes:
        print(f"kafkalite: {note}", file=sys.stderr)
    if as_json:
        print_json(document(report))
        return
    verdict = report.verdict
    if not verdict.window_count:
        return
    if verdict.differences:
        titles = ("STAGE", "TOPIC", "WINDOW", "SERVER", "EXPECTED", "MISSING", "DUPLICATED", "UNREPORTED")
        print_table(titles, [cells(row) for row in verdict.differences])
        print()
    for named in report.named:
        texts = [f"missing {spans(named.missing)}"] if named.missing else []
        texts += [f"duplicated {spans([(one, one + 1) for one in named.duplicated])}"] if named.duplicated else []
        print(f"{named.stage}: {named.topic}, server {named.server}, run {named.run:016x}: {'; '.join(texts)}")
    messages, topics = counted(verdict.expected, "message"), counted(len(verdict.topics), "topic")
    scope = f"{messages} of {topics} in {counted(verdict.window_count, 'window')}"
    stages = ", ".join(report.stages)
    still = f"; not judged yet: {counted(verdict.open_count, 'window')}" if verdict.open_count else ""
    if verdict.complete:
        print(f"complete: {scope}, each once in {stages}{still}")
    else:
        print(f"{counted(len(verdict.differences), 'difference')}: {scope}, compared with {stages}{still}")


def nothing_judged(report: Report) -> str:
    """Why there is no verdict."""
    verdict = report.verdict
    if verdict.open_count:
        return f"nothing is judged yet: {counted(verdict.open_count, 'window')} still open, or within --grace"
    return f"nothing is judged: no window of {counted(len(verdict.topics), 'topic')} lies in the time asked for"


def counted(count: int, name: str) -> str:
    """1 window, 2 windows."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def cells(row: Difference) -> tuple[object, ...]:
    """A line of the table."""
    return (
        row.stage,
        row.topic,
        window_text(row.window_ms, row.length_ms),
        row.server,
        row.expected,
        row.missing,
        row.duplicated,
        row.unreported,
    )


def window_text(start_ms: int, length_ms: int) -> str:
    """When a window begins, in UTC, and its length."""
    try:
        start = dt.datetime.fromtimestamp(start_ms / 1000, dt.UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        start = f"{start_ms} ms"
    return f"{start} {length_ms / 1000:g} s"


def spans(ranges: list[tuple[int, int]]) -> str:
    """Numbers of messages: 17-23, 40."""
    return ", ".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges)


def document(report: Report) -> dict[str, object]:
    """The report as JSON."""
    verdict = report.verdict
    return {
        "complete": verdict.complete,
        "topics": verdict.topics,
        "expected": verdict.expected,
        "windows": verdict.window_count,
        "open_windows": verdict.open_count,
        "stages": {
            name: {
                "records": count.record_count,
                "unmarked": sum(count.unmarked.values()),
                **{
                    kind: sum(getattr(row, kind) for row in verdict.differences if row.stage == name)
                    for kind in ("missing", "duplicated", "unreported")
                },
            }
            for name, count in report.stages.items()
        },
        "differences": [
            {**row._asdict(), "window": window_text(row.window_ms, row.length_ms)} for row in verdict.differences
        ],
        "messages": [
            {
                "stage": named.stage,
                "topic": named.topic,
                "server": named.server,
                "run": f"{named.run:016x}",
                "missing": [[first, end - 1] for first, end in named.missing],
                "duplicated": {str(number): times for number, times in named.duplicated.items()},
            }
            for named in report.named
        ],
        "notes": report.notes,
    }
