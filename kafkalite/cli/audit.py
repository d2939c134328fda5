"""Verify that every message that producers sent has arrived once: in brokers, mirrors, consumers and loaded files.

  kafkalite audit --live live:9092
  kafkalite audit --live live:9092 --offline offline:9092 --mirror offline --loaded /data/loaded --since -1d
  kafkalite audit --live live:9092 --consumer billing --mark-field clicks=audit
  kafkalite audit --live live:9092 --offline offline:9092 --follow --state audit.state --metrics 127.0.0.1:9645

Producers that use `kafkalite.audit` mark each message with the name of their server and a number. The mark is in a
header, or, with --mark-field, in a field of the JSON or Avro payload. The producers also count their messages, and send
the counts to the topic kafkalite.audit of the live broker.

The command compares each stage that you name with these counts, for each topic, server and time window. A message
belongs to the window of its timestamp. Windows that are still open are not compared.

  missing      a producer counted the message, but the stage does not have it
  duplicated   the stage has the message more than once
  unreported   the stage has the message, but no producer counted it: its producer crashed or has not reported yet

A TIME is an ISO 8601 time (UTC by default), a time before now such as -1h (units: ms, s, m, h, d, w), or ms since 1970.
A number of ten digits is seconds since 1970.

With --follow the command runs until SIGTERM or Ctrl-C. It prints a line for each difference, and for each window that
has been compared in every stage. If a result changes later, it prints the new result. Brokers that cannot be reached
are tried again. --state stores the counts, so that a restart continues where the last run ended.

Exit status 0: every stage has every message once. 1: there are differences. 2: nothing was compared, for example
because a broker could not be reached or no window was closed. With --follow: 0 after SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.cli import EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.audit_plan import grace, plan_of, refusals, spans, window_text
from kafkalite.cli.common import Progress, add_config_argument, say_isolation, seconds
from kafkalite.cli.metrics_page import add_metrics_arguments
from kafkalite.cli.output import note, print_json, print_table, say
from kafkalite.cli.times import moment

if TYPE_CHECKING:
    import argparse

    from kafkalite.audit.judge import Difference
    from kafkalite.audit.run import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--live", metavar="HOST:PORT", required=True, help="brokers that producers send to")
    add_config_argument(parser, "--live-config", " for --live")
    parser.add_argument("--offline", metavar="HOST:PORT", help="brokers that a mirror copies to")
    parser.add_argument("--mirror", metavar="NAME", help="also compare the records that this mirror has copied")
    parser.add_argument(
        "--loaded",
        metavar="[NAME=]DIR",
        action="append",
        default=[],
        help="also compare the files of `kafkalite load` in DIR, as stage NAME (default: loaded); can be repeated",
    )
    parser.add_argument(
        "--consumer",
        metavar="STAGE",
        action="append",
        default=[],
        help="also compare the records that consumers report under this stage name; can be repeated",
    )
    parser.add_argument(
        "--topics",
        metavar="REGEX",
        default=".*",
        help="topics to audit; REGEX must match the whole name (default: all)",
    )
    parser.add_argument("--counts", metavar="TOPIC", help="topic with the producers' counts (default: kafkalite.audit)")
    parser.add_argument(
        "--mark-field",
        metavar="[TOPIC=]FIELD",
        action="append",
        default=[],
        help="payload field with the audit mark, for one topic or all; can be repeated",
    )
    parser.add_argument("--registry", metavar="URL", help="schema registry for --mark-field in Avro payloads")
    parser.add_argument(
        "--mark-schema",
        metavar="[TOPIC=]FILE",
        action="append",
        default=[],
        help="file with the Avro schema of payloads that have no schema id; can be repeated",
    )
    parser.add_argument("--since", metavar="TIME", type=moment, help="compare only windows from this time on")
    parser.add_argument("--until", metavar="TIME", type=moment, help="compare only windows before this time")
    parser.add_argument(
        "--grace",
        metavar="S",
        type=grace,
        default=60.0,
        help="seconds that a window stays open after its end (default: 60)",
    )
    add_config_argument(parser, "--offline-config", " for --offline")
    add_follow_arguments(parser)
    add_metrics_arguments(parser)
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=30.0, help="response timeout in seconds (default: 30)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_follow_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of --follow."""
    parser.add_argument(
        "--follow", action="store_true", help="run until stopped, and report each window when it closes"
    )
    parser.add_argument(
        "--stage-grace",
        metavar="STAGE=S",
        action="append",
        default=[],
        help="with --follow: value of --grace for one stage, such as loaded=3600; can be repeated",
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=seconds,
        default=5.0,
        help="with --follow: seconds between two reads (default: 5)",
    )
    parser.add_argument(
        "--keep",
        metavar="S",
        type=seconds,
        default=3600.0,
        help="with --follow: seconds for which a window is still updated after its end (default: 3600)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("stop", "recount"),
        default="stop",
        help=(
            "with --follow: what to do if a log was restored or truncated: stop, or recount the affected stages "
            "(default: stop)"
        ),
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        help="with --follow: file that stores the counts, from which the next run continues",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        from kafkalite.cli.audit_follow import follow

        return follow(arguments)
    for flag in ("state", "metrics", "metrics_users", "stage_grace"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag.replace('_', '-')} requires --follow")
    if arguments.on_data_loss != "stop":
        raise UsageError("--on-data-loss requires --follow; without it, no state is kept between runs")
    from kafkalite.audit.run import run_audit

    shown = False if arguments.quiet else None
    lines: dict[str, Progress] = {}

    def on_progress(stage: str, rows: int) -> None:
        lines.setdefault(stage, Progress(f"{stage}: read", shown=shown)).update(rows, 0)

    with contextlib.ExitStack() as stack, refusals():
        report = run_audit(plan_of(arguments, stack), on_progress)
    show(report, as_json=arguments.json)
    if report.verdict.window_count:
        say_isolation("read_committed")
    if not report.verdict.window_count:
        raise CommandError(nothing_judged(report), status=EXIT_USAGE)
    return 0 if report.verdict.complete else 1


# --- output -----------------------------------------------------------------------------------------------------------


def show(report: Report, *, as_json: bool) -> None:
    """Print the result of the audit as a table, or the whole report as JSON."""
    for remark in report.notes:
        note(f"kafkalite: {remark}")
    if as_json:
        print_json(document(report))
        return
    verdict = report.verdict
    if not verdict.window_count:
        return
    if verdict.differences:
        titles = ("STAGE", "TOPIC", "WINDOW", "SERVER", "EXPECTED", "MISSING", "DUPLICATED", "UNREPORTED")
        print_table(titles, [cells(row) for row in verdict.differences])
        say()
    for named in report.named:
        texts = [f"missing {spans(named.missing)}"] if named.missing else []
        texts += [f"duplicated {spans([(one, one + 1) for one in named.duplicated])}"] if named.duplicated else []
        say(f"{named.stage}: {named.topic}, server {named.server}, run {named.run:016x}: {'; '.join(texts)}")
    messages, topics = counted(verdict.expected, "message"), counted(len(verdict.topics), "topic")
    scope = f"{messages} of {topics} in {counted(verdict.window_count, 'window')}"
    stages = ", ".join(report.stages)
    still = f"; not compared yet: {counted(verdict.open_count, 'window')}" if verdict.open_count else ""
    if verdict.complete:
        say(f"complete: {scope}, each once in {stages}{still}")
    else:
        say(f"{counted(len(verdict.differences), 'difference')}: {scope}, compared with {stages}{still}")


def nothing_judged(report: Report) -> str:
    """Return the sentence that says why no window was compared."""
    verdict = report.verdict
    if verdict.open_count:
        return f"nothing to compare yet: {counted(verdict.open_count, 'window')} still open or within --grace"
    return f"nothing to compare: no window of {counted(len(verdict.topics), 'topic')} in the requested time"


def counted(count: int, name: str) -> str:
    """Format a count: 1 window, 2 windows."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def cells(row: Difference) -> tuple[object, ...]:
    """Return the cells of a row of the table."""
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


def document(report: Report) -> dict[str, object]:
    """Return the report for --json."""
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
