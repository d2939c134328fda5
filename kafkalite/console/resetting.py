"""Reset a group's offsets, and delete groups.

    GET     shows the new offset of each partition
    POST    commits the offsets that were shown; refused if the group or a log has changed since

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kafkalite.client.admin.resets import (
    OFFSET,
    OFFSET_DIGITS_MAX,
    SHIFT,
    TARGETS,
    TIME,
    Target,
    parse_offsets,
    plan_offsets,
    plan_reset,
)
from kafkalite.console.dependents import topics_of_failures
from kafkalite.console.messages import time_of
from kafkalite.console.requests import BadRequestError, ConflictError, Done
from kafkalite.errors import GroupIdNotFound
from kafkalite.failures.names import ledger_name
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client import Client
    from kafkalite.client.admin.resets import Reset
    from kafkalite.console.action_context import ActionRequest

PLAN_SIZE_MAX: Final = 512 * 1024
PARTITIONS_MAX: Final = 5000
FILE_SIZE_MAX: Final = 512 * 1024
INSTEAD: Final = "kafkalite groups reset-offsets"
"""The command that has no such limits."""


def reset_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form. With the field `to`, also return the new offset of each partition."""
    group = request.values[0]
    asked = {
        "group": group,
        "to": request.text("to"),
        "value": request.text("value"),
        "topics": request.text("topics"),
        "members": members_of(client, group),
        "targets": TARGETS,
        "error": "",
        "plan": None,
        "plan_text": "",
        "csv": "",
    }
    if not asked["to"]:
        return asked
    try:
        return {**asked, **planned(plan_of(client, group, request))}
    except (BadRequestError, ValueError) as error:
        return {**asked, "error": str(error)}


def planned(plan: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a plan as table rows, and as the form field that the page sends back."""
    rows = [[row["topic"], row["partition"], row["before"], row["after"]] for row in plan]
    return {"plan": plan, "plan_text": plan_text(rows, INSTEAD)}


def plan_text(rows: list[list[Any]], instead: str) -> str:
    """Return a plan as the form field that `parsed_plan` parses. Raises BadRequestError if the plan is too large."""
    require_few(len(rows), instead)
    text = json.dumps(rows)
    if len(text) > PLAN_SIZE_MAX:
        raise too_many(len(rows), instead)
    return text


def file_action(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the plan for the lines of an uploaded file. Nothing is reset."""
    group = request.values[0]
    text = request.whole_text("csv", FILE_SIZE_MAX)
    request.bench.deed.detail["dry_run"] = True
    asked = {**reset_page(client, request), "csv": text}
    try:
        offsets = parse_offsets(text, group)
        require_partitions(client, offsets)
        committed = {key: row.offset for key, row in client.groups.committed(group).items()}
        return {**asked, **planned([row_of(row) for row in plan_offsets(client, offsets, committed)])}
    except (BadRequestError, ValueError) as error:
        request.bench.deed.detail["why"] = "the file is not valid for this group"  # the error may quote a line
        return {**asked, "error": str(error)}


def require_few(count: int, instead: str) -> None:
    """Raise BadRequestError if there are too many partitions for a page. `instead` is the command to use."""
    if count > PARTITIONS_MAX:
        raise too_many(count, instead)


def too_many(count: int, instead: str) -> BadRequestError:
    return BadRequestError(f"{count} partitions are too many for this page; use {instead}")


def require_partitions(client: Client, keys: Iterable[TopicPartition]) -> None:
    """Raise BadRequestError if a partition does not exist or there are too many."""
    listed = list(keys)
    require_few(len(listed), INSTEAD)
    topics = client.described({key.topic for key in listed})
    for key in listed:
        numbers = [row.partition for row in topics[key.topic].partitions] if key.topic in topics else []
        if key.partition not in numbers:
            raise BadRequestError(f"partition {key} does not exist")


def members_of(client: Client, group: str) -> int:
    """Return the number of the group's members. It is 0 for a group that does not exist yet."""
    try:
        return len(client.groups.describe(group).members)
    except GroupIdNotFound:
        return 0


def plan_of(client: Client, group: str, request: ActionRequest) -> list[dict[str, Any]]:
    """Compute the plan that the request selects. Raises BadRequestError, ValueError."""
    committed = {key: row.offset for key, row in client.groups.committed(group).items()}
    keys = wanted(client, request.text("topics")) if request.text("topics") else sorted(committed)
    if not keys:
        raise BadRequestError(f"group {group} has no committed offsets; enter topics")
    require_few(len(keys), INSTEAD)
    target = target_of(request)
    return [row_of(row) for row in plan_reset(client, keys, committed, target)]


def row_of(row: Reset) -> dict[str, Any]:
    """Return a partition of a plan as plain data for the template and JSON."""
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "before": row.before,
        "after": row.after,
        "start": row.start,
        "end": row.end,
        "moved_inside": row.asked != row.after,
    }


def wanted(client: Client, text: str) -> list[TopicPartition]:
    """Parse TOPIC and TOPIC:PARTITION, separated by commas. Return the partitions."""
    keys: set[TopicPartition] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = part.partition(":")
        numbers = client.partitions(name)
        if colon:
            if not number.isdecimal() or len(number) > OFFSET_DIGITS_MAX or int(number) not in numbers:
                raise BadRequestError(f"{name} has no partition {number[:20]}")
            numbers = [int(number)]
        keys.update(TopicPartition(name, each) for each in numbers)
    return sorted(keys)


def target_of(request: ActionRequest) -> Target:
    kind, value = request.choice("to", TARGETS), request.text("value")
    if kind == TIME:
        return Target(kind, time_of(value))
    if kind == OFFSET:
        return Target(kind, whole(value))
    if kind == SHIFT:
        return Target(kind, -whole(value[1:]) if value.startswith("-") else whole(value.removeprefix("+")))
    return Target(kind)


def whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > OFFSET_DIGITS_MAX:
        raise BadRequestError("enter a whole number")
    return int(text)


def reset_action(client: Client, request: ActionRequest) -> Done:
    """Commit the plan that was shown."""
    group = request.values[0]
    rows = parsed_plan(request.whole_text("plan", PLAN_SIZE_MAX))
    if members_of(client, group):
        raise ConflictError(f"group {group} has members, which would overwrite the offsets; stop them first")
    committed = {key: row.offset for key, row in client.groups.committed(group).items()}
    starts = client.list_offsets(dict.fromkeys(rows, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(rows, OFFSET_LATEST))
    for key, (before, after) in rows.items():
        if committed.get(key) != before:
            raise ConflictError(
                f"group {group} has committed another offset for {key} in the meantime; reload the page"
            )
        if not starts[key].offset <= after <= ends[key].offset:
            raise ConflictError(f"offset {after} of {key} does not exist any more; reload the page")
    moved = {key: after for key, (before, after) in rows.items() if after != before}
    if moved:
        client.groups.commit(group, moved)
    request.bench.deed.detail.update(
        {f"{key}": f"{rows[key][0]} -> {after}" for key, after in list(moved.items())[:50]}, moved=len(moved)
    )
    return Done(f"/groups/{quote(group, safe='')}?done=reset", {"group": group, "moved": len(moved)})


def parsed_plan(text: str) -> dict[TopicPartition, tuple[int | None, int]]:
    """Parse the JSON [[topic, partition, before, after], …]. Raises BadRequestError."""
    try:
        rows = [(*row,) for row in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        rows = [()]
    if not all(is_row(row) for row in rows):
        raise BadRequestError(
            "plan must be JSON of the form [[topic, partition, offset before or null, offset after], …]"
        )
    found = {TopicPartition(topic, partition): (before, after) for topic, partition, before, after in rows}
    if not found or len(found) > PARTITIONS_MAX:
        raise BadRequestError(f"a plan must have 1 to {PARTITIONS_MAX} partitions")
    return found


def is_row(row: tuple[object, ...]) -> bool:
    match row:
        case (str(), int(), int() | None, int()):
            return True
    return False


# --- delete -----------------------------------------------------------------------------------------------------------


def delete_group_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the group's offsets that would be deleted, and what depends on the group."""
    group = request.values[0]
    described = client.groups.describe(group)
    committed = client.groups.committed(group)
    topics = client.with_retries(client.topics)
    return {
        "group": group,
        "state": described.state,
        "members": len(described.members),
        "partitions": len(committed),
        "topics": sorted({key.topic for key in committed}),
        "ledger": ledger_name(group) if ledger_name(group) in topics else "",
        "failures": topics_of_failures(topics, group=group),
    }


def delete_group_action(client: Client, request: ActionRequest) -> Done:
    """Delete the group. `confirm` must be its name."""
    group = request.values[0]
    request.require_name(group)
    client.groups.delete(group)
    return Done("/groups?done=group-deleted", {"deleted": group})
