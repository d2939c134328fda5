"""Pages about dead letters: the topics that hold them, and the letters of one of these, with why.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.console.requests import BadRequestError
from kafkalite.console.shown import cell, visible
from kafkalite.console.topics import counted
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.names import DEAD
from kafkalite.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.requests import Request

LETTERS_MAX: Final = 500
SCANNED_MAX: Final = 20_000
"""Records that a topic may have for its letters to be read for a page."""
SUFFIXES: Final = ("-dlt", ".dlt", "-dlq", ".dlq", "_dlt", "_dlq")


def letters_page(client: Client, request: Request) -> dict[str, Any]:
    """Topics that by their names hold dead letters: ours, share groups', Spring's."""
    del request
    known = client.with_retries(client.topics)
    names = [name for name in known if is_dead_letter_topic(name)]
    counts = counted(client, [known[name] for name in names])
    return {"topics": [{"name": name, **counts[name]} for name in names]}


def is_dead_letter_topic(name: str) -> bool:
    """By its name."""
    return name.startswith(f"{DEAD}.") or name.lower().endswith(SUFFIXES)


def letter_topic_page(client: Client, request: Request) -> dict[str, Any]:
    """The letters of a topic, resolved ones left out unless they are asked for."""
    topic = request.values[0]
    count = counted(client, [client.topic(topic)])[topic]["records"]
    if count is None or count > SCANNED_MAX:
        raise BadRequestError(
            f"a page reads {SCANNED_MAX:,} letters at most: kafkalite letters list --topic {topic} reads them all"
        )
    group = group_of(topic)
    every = request.flag("all")
    box = LetterBox(client, group, topic)
    rows: list[dict[str, Any]] = []
    scanned = 0
    for entry in box.entries():
        scanned += 1
        if len(rows) < LETTERS_MAX and (every or entry.state == "dead"):
            message, reason = entry.message, entry.found.reason
            record = request.masks.masked(
                topic, Record(message.offset, message.timestamp, message.key, message.value, entry.found.headers)
            )
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
                    "group": visible(entry.found.letter.group),
                    "failures": entry.found.letter.attempt,
                    "family": reason.family,
                    "exception": visible(reason.exception),
                    "error": cell(reason.text.encode(errors="replace")).text,
                    "key": cell(record.key)._asdict(),
                }
            )
    return {
        "topic": topic,
        "group": group,
        "letters": rows,
        "all": every,
        "scanned": scanned,
        "more": len(rows) == LETTERS_MAX,
    }


def group_of(topic: str) -> str:
    """dlq.billing.orders → billing, if that is how it is named."""
    parts = topic.split(".", 2)
    return parts[1] if len(parts) == 3 and parts[0] == DEAD else ""
