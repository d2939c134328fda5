"""Show dead letters: the dead-letter topics, and the letters of a topic with their errors.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.letter_counts import LetterCount, count_letters, is_dead_letter_topic
from kafkalite.console.rendering import cell, visible
from kafkalite.console.requests import BadRequestError
from kafkalite.console.topics import counted
from kafkalite.errors import KafkaError
from kafkalite.failures.headers import Reason, found_letter
from kafkalite.failures.letters import Choice, LetterBox
from kafkalite.failures.names import DEAD
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.requests import Request
    from kafkalite.failures.letters import Entry

LETTERS_MAX: Final = 500
SCANNED_MAX: Final = 20_000
"""Maximum records of a topic whose letters a page reads."""


def letters_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the dead-letter topics. They are found by their names (kafkalite, share groups, Spring) or in policies."""
    names = request.topics(client)
    owners = request.routed.find(client, names)
    known = client.described(name for name in names if name in owners or is_dead_letter_topic(name))
    sizes = counted(client, known.values())
    try:
        counts = count_letters(client, known.values(), owners=owners)
    except (KafkaError, ClientError):
        counts = {}
    rows = []
    for name in sorted(known):
        count = counts.get(name, LetterCount(None, exact=False))
        rows.append({"name": name, **sizes[name], "records": count.letters, "exact": count.exact})
    return {"topics": rows}


def letter_topic_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the letters of a topic. Resolved letters are included only on request."""
    topic = request.values[0]
    require_few(client, topic)
    group = group_of(client, request, topic)
    every = request.flag("all")
    box = LetterBox(client, group, topic)
    choice = Choice(
        exception=request.text("exception") or None,
        day=request.text("day") or None,
        key=request.text("key") or None,
        everything=every,
    )
    keep = choice.keep()
    groups: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    scanned = 0
    for entry in box.entries():
        scanned += 1
        if len(rows) < LETTERS_MAX and keep(entry):
            groups[entry.found.letter.group] += 1
            message = entry.message
            record, reason = masked_letter(request, topic, entry)
            rows.append(
                {
                    "origin": visible(entry.origin),
                    "origin_topic": entry.found.letter.partition.topic,
                    "origin_partition": entry.found.letter.partition.partition,
                    "origin_offset": entry.found.letter.offset,
                    "partition": entry.partition.partition,
                    "offset": message.offset,
                    "timestamp": message.timestamp,
                    "state": entry.state,
                    "group": entry.found.letter.group,
                    "failures": entry.found.letter.attempt,
                    "family": reason.family,
                    "exception": visible(reason.exception),
                    "error": cell(reason.text.encode(errors="replace")).text,
                    "key": cell(record.key)._asdict(),
                }
            )
    return {
        "topic": topic,
        "group": group or next((name for name, _ in groups.most_common(1)), ""),
        "exception": choice.exception or "",
        "day": choice.day or "",
        "key": choice.key or "",
        "letters": rows,
        "all": every,
        "scanned": scanned,
        "more": len(rows) == LETTERS_MAX,
    }


def require_few(client: Client, topic: str) -> None:
    """Raise BadRequestError if a topic has too many letters for one page."""
    count = counted(client, [client.topic(topic)])[topic]["records"]
    if count is None or count > SCANNED_MAX:
        raise BadRequestError(
            f"a page reads at most {SCANNED_MAX:,} dead letters; for all of them, run: kafkalite letters list --topic "
            f"{topic}"
        )


def masked_letter(request: Request, topic: str, entry: Entry) -> tuple[Record, Reason]:
    """Return (the letter after masking, the reason in its masked headers)."""
    message = entry.message
    record = request.masks.masked(
        topic, Record(message.offset, message.timestamp, message.key, message.value, message.headers)
    )
    found = found_letter(record.headers)
    return record, Reason() if found is None else found.reason


def group_of(client: Client, request: Request, topic: str) -> str:
    """Return the group of a topic, from its name (billing in dlq.billing.orders) or from a policy; "" if there is
    none."""
    parts = topic.split(".", 2)
    if len(parts) == 3 and parts[0] == DEAD:
        return parts[1]
    return request.routed.find(client, request.topics(client)).get(topic, "")
