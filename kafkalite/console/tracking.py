"""Show the page that finds an event by its id, with `kafkalite.track`.

A search occupies a web worker. So only a few run at the same time, with limits on time and bytes. A search cannot find
masked data.

Thread rule: any thread. A search belongs to the thread that has the client.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.console.messages import time_of
from kafkalite.console.rendering import cell, visible
from kafkalite.console.requests import BadRequestError, BusyError, Request
from kafkalite.errors import StartupError
from kafkalite.track.front import Inquiry, TooLarge, whole_path
from kafkalite.track.questions import How, Matcher
from kafkalite.track.searches import Hit, Limits
from kafkalite.track.verdicts import Groups
from kafkalite.wire.record.columns import RecordColumns

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.track.path import Step

SEARCHES_AT_A_TIME: Final = 2
TIME_MAX_S: Final = 20.0
HITS_MAX: Final = 200
SIZE_MAX: Final = 20 * 1024**3
WORKERS: Final = 2
STEPS_MAX: Final = 500
_running: Final = threading.BoundedSemaphore(SEARCHES_AT_A_TIME)


def track_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the form. If the request's query string has a search, also return its result."""
    text = request.text("id")
    how = request.choice("how", tuple(how.value for how in How))
    asked: dict[str, Any] = {
        "id": text,
        "topics": request.text("topics", ".*"),
        "places": request.text("in", "header:*,key,value"),
        "how": how,
        "since": request.text("since"),
        "until": request.text("until"),
        "groups": request.flag("groups") or not text,
        "hows": [how.value for how in How],
    }
    if not text:
        return {**asked, "result": None}
    inquiry = inquiry_of(asked)
    if not _running.acquire(blocking=False):
        raise BusyError(f"{SEARCHES_AT_A_TIME} searches are already running; try again later")
    try:
        return {**asked, "result": result_of(client, request, inquiry, groups=asked["groups"])}
    finally:
        _running.release()


def inquiry_of(asked: dict[str, Any]) -> Inquiry:
    """Parse the search in a request. Raises BadRequestError."""
    try:
        return Inquiry.of(
            asked["id"],
            topics=asked["topics"],
            places=asked["places"],
            how=asked["how"],
            since=time_of(asked["since"]) if asked["since"] else None,
            until=time_of(asked["until"]) if asked["until"] else None,
            limits=Limits(HITS_MAX, TIME_MAX_S, WORKERS),
            size_max=SIZE_MAX,
        )
    except (ValueError, StartupError) as error:
        raise BadRequestError(str(error)) from error


def result_of(client: Client, request: Request, inquiry: Inquiry, *, groups: bool) -> dict[str, Any]:
    """Run a search. Return the hits in order, their states in groups, and how much was searched."""
    try:
        search = inquiry.search(client)
    except TooLarge as error:
        raise BadRequestError(f"{error}: enter fewer topics, or a time") from error
    with search:
        hits = [hit for hit in search if still_fits(request, inquiry, hit)]
    remarks: list[str] = []
    steps = whole_path(client, hits, remarks.append)[:STEPS_MAX]
    verdicts: list[dict[str, Any]] = []
    if groups and steps:
        found = Groups(client, {step.hit.partition.topic for step in steps if step.letter is None})
        verdicts = [{**row._asdict(), "text": row.text, "reason": visible(row.reason)} for row in found.verdicts(steps)]
        remarks += found.remarks
    rows = search.reach
    return {
        "steps": [step_row(request, step) for step in steps],
        "verdicts": verdicts,
        "hits": len(hits),
        "records": sum(row.records for row in rows),
        "partitions": len(rows),
        "complete": search.complete and not search.ended_by,
        "ended_by": search.ended_by,
        "remarks": remarks,
        "reach": [
            {"topic": row.topic, "partition": row.partition, "remarks": row.remarks()} for row in rows if row.remarks()
        ],
    }


def still_fits(request: Request, inquiry: Inquiry, hit: Hit) -> bool:
    """Return whether a hit still matches after masking. Without this check a search could reveal masked data."""
    record = request.masks.masked(hit.partition.topic, hit.record)
    if record == hit.record:
        return True
    question = inquiry.questions.of(hit.partition.topic)
    if any(place.is_avro for place in question.places):
        return False
    return any(True for _ in Matcher(question).found(RecordColumns.from_records([record])))


def step_row(request: Request, step: Step) -> dict[str, Any]:
    """Return a record of the event's path as plain data."""
    hit = step.hit
    record = request.masks.masked(hit.partition.topic, hit.record)
    letter = step.letter
    return {
        "topic": hit.partition.topic,
        "partition": hit.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "after_ms": step.after_ms,
        "places": [visible(str(place)) for place in hit.places],
        "key": cell(record.key)._asdict(),
        "value": cell(record.value)._asdict(),
        "origin": visible(step.origin) if letter is not None else "",
        "attempt": 0 if letter is None else letter.letter.attempt,
        "group": "" if letter is None else letter.letter.group,
        "exception": "" if letter is None else visible(letter.reason.exception),
    }
