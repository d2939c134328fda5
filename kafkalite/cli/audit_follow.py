"""Run `kafkalite audit --follow`: audit repeatedly until a signal, print events, serve metrics, save the state.

Each event is a line of text:

    offline  logs  2026-11-21T18:05:00 60 s  web1: 7 missing, 3 duplicated of 600 (missing 700-706; duplicated 650, 651)
    offline  logs  2026-11-21T18:05:00 60 s  web1: all 600, each once (before: 7 missing)
    complete  logs  2026-11-21T18:06:00 60 s  6000 messages, each once in live, mirror, offline
    incomplete  logs  2026-11-21T18:05:00 60 s  6000 messages: differs from what was sent in offline

With --json each event is one JSON object. Read errors go to stderr, and with --json also to stdout.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.ending import on_ending
from kafkalite.cli import EXIT_FAILURE, CommandError, UsageError, sentence
from kafkalite.cli.audit_plan import grace, plan_of, refusals, spans, window_text
from kafkalite.cli.common import say_isolation
from kafkalite.cli.metrics_page import metrics_page
from kafkalite.cli.output import note, print_json, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from kafkalite.audit.following import Closed, Event_, Follower, Wrong
    from kafkalite.audit.run import Plan

RETRY_S: Final = 5.0
"""The longest time for which a broker that cannot be reached delays a round, or the end of the command."""
KINDS: Final = ("missing", "duplicated", "unreported")


def follow(arguments: argparse.Namespace) -> int:
    """Audit until a signal comes. Return the exit status."""
    from kafkalite.audit.following import Follower

    if arguments.since is not None or arguments.until is not None:
        raise UsageError(
            "--since and --until cannot be used with --follow, which reads new records and looks back as far as --keep"
        )
    arguments.timeout = min(arguments.timeout, RETRY_S)
    with contextlib.ExitStack() as stack:
        with refusals():
            plan = plan_of(arguments, stack)
        follower = Follower(
            plan,
            told(as_json=arguments.json),
            graces_s=stage_graces(arguments.stage_grace, plan),
            interval_s=arguments.interval,
            keep_s=arguments.keep,
            recounts=arguments.on_data_loss == "recount",
        )
        save = None
        if arguments.state is not None:
            save = stack.enter_context(kept(follower, arguments))
        stack.enter_context(
            metrics_page(arguments, [follower.families], alive=follower.not_alive, ready=follower.not_ready)
        )
        stop = threading.Event()
        with on_ending(stop.set):
            say_isolation("read_committed")
            follower.run(stop, save)
    return 0


@contextlib.contextmanager
def kept(follower: Follower, arguments: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Lock and load the file of --state, and yield the function that saves the state.

    UsageError if another audit uses the file, or if the file cannot be read.
    """
    import fcntl

    from kafkalite.audit.saved import StateError, load, save

    about = {
        "live": arguments.live,
        "offline": arguments.offline,
        "mirror": arguments.mirror,
        "topics": arguments.topics,
        "counts": arguments.counts,
        "stages": list(follower.stages),
    }

    def write() -> None:
        try:
            save(follower, arguments.state, about)
        except OSError as error:
            raise CommandError(f"--state {arguments.state}: {sentence(error)}", EXIT_FAILURE) from error

    if arguments.state.is_dir():
        raise UsageError(f"--state {arguments.state}: is a directory; expected a file")
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(arguments.state.with_name(f"{arguments.state.name}.lock").open("ab"))
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            load(follower, arguments.state, about)
        except BlockingIOError as error:
            raise UsageError(
                f"--state {arguments.state}: in use by another audit; give each audit its own file"
            ) from error
        except StateError as error:
            raise UsageError(f"--state: {error}") from error
        except OSError as error:
            raise UsageError(f"--state {arguments.state}: {sentence(error)}") from error
        yield write


def stage_graces(texts: list[str], plan: Plan) -> dict[str, float]:
    """Parse repeated STAGE=S arguments. UsageError for an unknown stage."""
    import argparse

    names = {"live", *plan.consumers, *plan.loaded}
    names |= {"mirror"} if plan.mirror is not None else set()
    names |= {"offline"} if plan.offline is not None else set()
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name not in names:
            raise UsageError(
                f"--stage-grace {text}: unknown stage {name!r}; expected one of {', '.join(sorted(names))}"
            )
        try:
            found[name] = grace(value)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--stage-grace {text}: {error}") from error
    return found


# --- output -----------------------------------------------------------------------------------------------------------


def told(*, as_json: bool) -> Any:
    """Return the function that prints an event, as text or JSON."""
    from kafkalite.audit.following import Away, Wrong

    def tell(event: Event_) -> None:
        if isinstance(event, Away):
            reason = "is readable again" if event.reason is None else f"cannot be read: {event.reason}"
            note(f"kafkalite: {event.stage} {reason}")
            if as_json:
                print_json({"event": "away", "stage": event.stage, "reason": event.reason})
        elif as_json:
            print_json(wrong_document(event) if isinstance(event, Wrong) else closed_document(event))
        else:
            say(wrong_line(event) if isinstance(event, Wrong) else closed_line(event))
        sys.stdout.flush()

    return tell


def wrong_line(event: Wrong) -> str:
    """Format an event: a stage has differences in a window, or the differences have ended."""
    row = event.difference
    found = amounts((row.missing, row.duplicated, row.unreported))
    text = f"{found} of {row.expected}" if found else f"all {row.expected}, each once"
    numbers = [f"missing {spans(event.missing)}"] if event.missing else []
    numbers += [f"duplicated {spans([(one, one + 1) for one in event.duplicated])}"] if event.duplicated else []
    more = f" ({'; '.join(numbers)})" if numbers else ""
    if event.before is not None:
        more += f" (before: {amounts(event.before) or 'no difference'})"
    return f"{row.stage}  {row.topic}  {window_text(row.window_ms, row.length_ms)}  {row.server}: {text}{more}"


def amounts(found: tuple[int, int, int]) -> str:
    """Format how many messages are missing, duplicated and unreported: 7 missing, 3 duplicated. Leave out zeros."""
    return ", ".join(f"{count} {kind}" for count, kind in zip(found, KINDS, strict=True) if count)


def closed_line(event: Closed) -> str:
    """Format an event: every stage has reached the end of a window."""
    window = event.window
    head = f"{window.topic}  {window_text(window.start_ms, window.length_ms)}  {event.expected} messages"
    if event.wrong:
        return f"incomplete  {head}: differs from what was sent in {', '.join(event.wrong)}"
    return f"complete  {head}, each once in {', '.join(event.stages)}"


def wrong_document(event: Wrong) -> dict[str, object]:
    """Return the event of `wrong_line` for --json."""
    row = event.difference
    return {
        "event": "wrong" if any((row.missing, row.duplicated, row.unreported)) else "right",
        **row._asdict(),
        "window": window_text(row.window_ms, row.length_ms),
        "before": None if event.before is None else dict(zip(KINDS, event.before, strict=True)),
        "missing_numbers": [[first, end - 1] for first, end in event.missing],
        "duplicated_numbers": event.duplicated,
    }


def closed_document(event: Closed) -> dict[str, object]:
    """Return the event of `closed_line` for --json."""
    window = event.window
    return {
        "event": "incomplete" if event.wrong else "complete",
        "topic": window.topic,
        "window_ms": window.start_ms,
        "length_ms": window.length_ms,
        "window": window_text(window.start_ms, window.length_ms),
        "expected": event.expected,
        "complete_in": event.stages,
        "wrong_in": event.wrong,
    }
