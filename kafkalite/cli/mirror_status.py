"""Run `kafkalite mirror status`: show the progress of each mirrored topic, or why it is not being copied."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from kafkalite.cli import EXIT_USAGE, CommandError
from kafkalite.cli.common import open_client
from kafkalite.cli.output import print_json, print_table
from kafkalite.cli.times import utc_text

if TYPE_CHECKING:
    import argparse

    from kafkalite.mirror.reports import TopicReport

CLIENT_ID: Final = "kafkalite-mirror-status"
COPIED: Final = "copied"
LEFT_BEHIND: Final = "left behind"


def run(arguments: argparse.Namespace) -> int:
    """Print the state of each topic, from the progress stored in the target. With --from, print its lag, too."""
    from kafkalite.mirror.reports import add_lags, read_reports

    with contextlib.ExitStack() as stack:
        target = open_client(arguments, "--to", arguments.target, config=arguments.to_config, client_id=CLIENT_ID)
        try:
            reports = read_reports(stack.enter_context(target), arguments.name)
        except KeyError as error:
            text = f"no mirror named {arguments.name} has stored progress in the target; check --name"
            raise CommandError(text, status=EXIT_USAGE) from error
        if arguments.source is not None:
            source = open_client(
                arguments, "--from", arguments.source, config=arguments.from_config, client_id=CLIENT_ID
            )
            add_lags(reports, stack.enter_context(source))
    if arguments.json:
        print_json([as_json(report) for report in reports])
        return 0
    rows = [
        (
            report.mirror,
            report.topic,
            report.target,
            COPIED if report.left_behind is None else LEFT_BEHIND,
            str(sum(report.offsets.values())),
            "-" if report.lag is None else str(report.lag),
            utc_text(report.last_ms),
            "" if report.left_behind is None else reason_of(report),
        )
        for report in reports
    ]
    print_table(("MIRROR", "TOPIC", "TARGET", "STATE", "OFFSETS", "LAG", "LAST", "REASON"), rows)
    return 0


def reason_of(report: TopicReport) -> str:
    """Return the reason why a topic is not being copied, the number of attempts, and the time of the first."""
    assert report.left_behind is not None, "it is"
    row = report.left_behind
    return f"{row.reason}; {row.tries} attempts since {utc_text(row.since_ms)}"


def as_json(report: TopicReport) -> dict[str, object]:
    """Return the status of one topic for --json."""
    row = report.left_behind
    return {
        "mirror": report.mirror,
        "source": report.source_id,
        "topic": report.topic,
        "target": report.target,
        "state": COPIED if row is None else LEFT_BEHIND,
        "offsets": {str(partition): offset for partition, offset in sorted(report.offsets.items())},
        "lag": report.lag,
        "last_ms": report.last_ms,
        "reason": None if row is None else row.reason,
        "since_ms": None if row is None else row.since_ms,
        "tries": 0 if row is None else row.tries,
    }
