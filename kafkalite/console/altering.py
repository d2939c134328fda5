"""Create and delete topics, change their settings, add partitions, and delete records.

Before a topic is deleted, the page lists what depends on it. To delete a topic or records, the user must type the
topic's name.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kafkalite.client.errors import ClientError
from kafkalite.console.dependents import subjects_of, topics_of_failures
from kafkalite.console.messages import time_of
from kafkalite.console.requests import BadRequestError, ConflictError, Done
from kafkalite.console.resetting import PLAN_SIZE_MAX, parsed_plan, plan_text
from kafkalite.console.topics import counted, groups_of
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest

SETTINGS_SIZE_MAX: Final = 32 * 1024
PARTITIONS_MAX: Final = 10_000
"""Limit of one form; the cluster has its own limits."""
OFFSET_MAX: Final = 2**62


def place_of(topic: str, done: str) -> str:
    return f"/topics/{quote(topic, safe='')}?done={done}"


def parse_settings(text: str) -> dict[str, str]:
    """Parse lines of name=value. Raises BadRequestError, which quotes no line, since the audit stores it."""
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise BadRequestError(f"line {number} of the settings is not a setting; write name=value")
        found[name.strip()] = value.strip()
    return found


# --- create -----------------------------------------------------------------------------------------------------------


def new_topic_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return an empty form for a new topic."""
    del client, request
    return {"name": "", "count": "", "replicas": "", "settings": "", "error": ""}


def create_topic_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    """Create a topic. If that fails, return the form with the error."""
    name = request.text("name")
    settings = request.whole_text("settings", SETTINGS_SIZE_MAX)
    form: dict[str, Any] = {
        "name": name,
        "count": request.text("count"),
        "replicas": request.text("replicas"),
        "settings": settings,
    }
    try:
        count = request.number("count", -1, 1, PARTITIONS_MAX)
        replicas = request.number("replicas", -1, 1, 1000)
        client.admin.create_topic(name, count, replication_factor=replicas, configs=parse_settings(settings))
    except BadRequestError as error:
        return {**form, "error": str(error)}
    except KafkaError as error:
        return {**form, "error": f"{error} ({error.name})"}
    request.bench.deed.detail.update(topic=name, partitions=count)
    return Done(place_of(name, "created"), {"created": name})


# --- settings ---------------------------------------------------------------------------------------------------------


def own_settings(client: Client, topic: str) -> dict[str, str]:
    """Return the settings that the topic overrides, except secrets."""
    entries = client.admin.describe_topic_configs(topic)
    return {row.name: row.value or "" for row in entries if row.source == "topic" and not row.sensitive}


def lines_of(settings: dict[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in settings.items())


def alter_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form with the topic's overrides, one per line."""
    name = request.values[0]
    own = lines_of(own_settings(client, name))
    entries = client.admin.describe_topic_configs(name)
    known = [row._asdict() for row in entries if not row.sensitive and not row.read_only]
    return {"name": name, "settings": own, "was": own, "known": known, "error": ""}


def alter_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    """Change the topic's settings to those in the form. An override that is no longer in the form is removed."""
    name = request.values[0]
    text = request.whole_text("settings", SETTINGS_SIZE_MAX)
    try:
        changes = changes_of(client, request, name, text)
        client.admin.alter_topic_configs(name, changes)
    except BadRequestError as error:
        return {**alter_page(client, request), "settings": text, "error": str(error)}
    except KafkaError as error:
        return {**alter_page(client, request), "settings": text, "error": f"{error} ({error.name})"}
    request.bench.deed.detail["settings"] = sorted(changes)
    return Done(place_of(name, "altered"), {"altered": name, "settings": sorted(changes)})


def changes_of(client: Client, request: ActionRequest, name: str, text: str) -> dict[str, str | None]:
    """Return the settings that differ between the form and the topic.

    Raises BadRequestError if there are none, and ConflictError if another user has changed them meanwhile.
    """
    wanted, before = parse_settings(text), parse_settings(request.whole_text("was", SETTINGS_SIZE_MAX))
    if own_settings(client, name) != before:
        raise ConflictError(f"the settings of {name} changed after the form was opened; reload the page")
    changes: dict[str, str | None] = {key: value for key, value in wanted.items() if before.get(key) != value}
    changes |= dict.fromkeys(before.keys() - wanted.keys())
    if not changes:
        raise BadRequestError("nothing to change: all settings already have these values")
    return changes


# --- partitions -------------------------------------------------------------------------------------------------------


def grow_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form to add partitions, with the current number."""
    topic = client.topic(request.values[0])
    return {"name": topic.name, "count": len(topic.partitions), "total": request.text("total"), "error": ""}


def grow_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    name = request.values[0]
    try:
        total = request.number("total", 0, 1, PARTITIONS_MAX)
        client.admin.add_partitions(name, total)
    except BadRequestError as error:
        return {**grow_page(client, request), "error": str(error)}
    except KafkaError as error:
        return {**grow_page(client, request), "error": f"{error} ({error.name})"}
    request.bench.deed.detail["total"] = total
    return Done(place_of(name, "grown"), {"grown": name, "total": total})


# --- records ----------------------------------------------------------------------------------------------------------


def trim_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form to delete records. With `before`, also return how many records each partition would lose."""
    name = request.values[0]
    asked = {
        "name": name,
        "partition": request.text("partition"),
        "before": request.text("before"),
        "partitions": client.partitions(name),
        "error": "",
        "plan": None,
        "plan_text": "",
    }
    if not asked["before"]:
        return asked
    try:
        rows = trim_plan(client, request, name)
        moved = [[name, row["partition"], row["start"], row["after"]] for row in rows if row["lost"]]
        text = plan_text(moved, "kafkalite topics delete-records")
    except BadRequestError as error:
        return {**asked, "error": str(error)}
    return {**asked, "plan": rows, "plan_text": text, "lost": sum(row["lost"] for row in rows)}


def trim_plan(client: Client, request: ActionRequest, name: str) -> list[dict[str, Any]]:
    """Return the records that would be deleted, by partition. `before` is an offset, "end" or a time."""
    chosen, text = request.text("partition"), request.text("before")
    numbers = client.partitions(name)
    if chosen:
        number = request.number("partition", 0, 0, 2**31 - 1)
        if number not in numbers:
            raise BadRequestError(f"{name} has no partition {chosen}")
        numbers = [number]
    keys = [TopicPartition(name, number) for number in numbers]
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
    if text == "end":
        wanted = {key: ends[key].offset for key in keys}
    elif text.isascii() and text.isdigit():
        wanted = dict.fromkeys(keys, request.number("before", 0, 0, OFFSET_MAX))
        if not chosen and len(client.partitions(name)) > 1:
            raise BadRequestError("an offset applies to one partition; choose a partition, or enter a time")
    else:
        found = client.list_offsets(dict.fromkeys(keys, time_of(text)))
        wanted = {key: found[key].offset if found[key].offset >= 0 else ends[key].offset for key in keys}
    rows = []
    for key in keys:
        start, end = starts[key].offset, ends[key].offset
        after = min(max(wanted[key], start), end)
        rows.append({"partition": key.partition, "start": start, "after": after, "end": end, "lost": after - start})
    return rows


def trim_action(client: Client, request: ActionRequest) -> Done:
    """Delete the records of the plan that was shown. `confirm` must be the topic's name."""
    name = request.values[0]
    request.require_name(name)
    rows = parsed_plan(request.whole_text("plan", PLAN_SIZE_MAX))
    numbers = client.partitions(name)
    if any(key.topic != name or key.partition not in numbers or after < 0 for key, (_, after) in rows.items()):
        raise BadRequestError(f"the plan has partitions or offsets that {name} cannot have")
    starts = client.list_offsets(dict.fromkeys(rows, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(rows, OFFSET_LATEST))
    for key, (_, after) in rows.items():
        if after > ends[key].offset:
            raise ConflictError(f"offset {after} of {key} does not exist any more; reload the page")
    moved = {key: after for key, (_, after) in rows.items() if after > starts[key].offset}
    lost = sum(after - starts[key].offset for key, after in moved.items())
    found = client.admin.delete_records(moved)
    request.bench.deed.detail.update(
        {f"{key}": f"{starts[key].offset} -> {after}" for key, after in list(moved.items())[:50]}, records=lost
    )
    return Done(
        place_of(name, "trimmed"),
        {"name": name, "lost": lost, "starts": {str(key.partition): offset for key, offset in found.items()}},
    )


# --- delete -----------------------------------------------------------------------------------------------------------


def delete_topic_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the size of the topic, and what depends on it."""
    topic = client.topic(request.values[0])
    keys = [TopicPartition(topic.name, row.partition) for row in topic.partitions if row.leader >= 0]
    try:
        ends = {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST)).items()}
    except (KafkaError, ClientError):
        ends = {}
    groups, complete = groups_of(client, topic.name, ends)
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        **counted(client, [topic])[topic.name],
        "groups": groups,
        "groups_complete": complete,
        "failures": topics_of_failures(client.with_retries(client.topics), topic=topic.name),
        "subjects": subjects_of(request.bench.registry, topic.name),
    }


def delete_topic_action(client: Client, request: ActionRequest) -> Done:
    """Delete the topic. `confirm` must be its name."""
    name = request.values[0]
    request.require_name(name)
    if client.topic(name).is_internal:
        raise ConflictError(f"{name} is an internal topic, which only the brokers change")
    client.admin.delete_topic(name)
    return Done("/topics?done=topic-deleted", {"deleted": name})
