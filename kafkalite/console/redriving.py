"""Redrive dead letters (send them back to their group) or resolve them, as `kafkalite letters` does.

The user selects single letters, or all dead letters that match a filter. Both actions run as jobs. A letter can be
edited before it is redriven, unless a part of it is masked.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.console.letters import group_of, masked_letter, require_few
from kafkalite.console.rendering import shown, visible
from kafkalite.console.requests import BadRequestError, ConflictError, Done, NotFoundError, whole
from kafkalite.console.sending import KINDS, SIZE_MAX, bytes_of, field_of
from kafkalite.failures.edits import parse_patch, patch_edit
from kafkalite.failures.letters import ROUNDS_MAX, Choice, LetterBox
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.console.clients import PooledClients
    from kafkalite.console.jobs import Job
    from kafkalite.failures.events import Message
    from kafkalite.failures.letters import Entry

CHOSEN_MAX: Final = 500
PATCH_SIZE_MAX: Final = 64 * 1024
EDITABLE: Final = tuple(kind for kind in KINDS if kind != "avro")
PROGRESS_EVERY: Final = 100


def chosen_of(request: ActionRequest) -> Callable[[Entry], bool]:
    """Return a function that tests whether the request selects a letter. Raises BadRequestError.

    The fields are `letter` (partition-offset), or `all_that_fit` with exception, day and key.
    """
    choice = Choice(
        exception=request.text("exception") or None, day=request.text("day") or None, key=request.text("key") or None
    )
    if request.flag("all_that_fit"):
        return choice.keep()
    named = request.many("letter")
    if not named or len(named) > CHOSEN_MAX:
        raise BadRequestError(f"choose 1 to {CHOSEN_MAX} dead letters, or all that match the filter")
    places = set()
    for text in named:
        partition, dash, offset = text.partition("-")
        if not dash:
            raise BadRequestError("a dead letter must be given as PARTITION-OFFSET")
        places.add((whole(partition, "partition"), whole(offset, "offset")))
    return lambda entry: (entry.partition.partition, entry.message.offset) in places


def group_for(client: Client, request: ActionRequest, topic: str) -> str:
    """Return the group to which a topic's letters belong. Raises BadRequestError."""
    group = request.text("group") or group_of(client, request, topic)
    if not group:
        raise BadRequestError(f"the topic name {topic} does not contain the group; enter the group")
    return group


def edit_of(request: ActionRequest, topic: str) -> Callable[[Message], Message] | None:
    """Return a function that applies the request's JSON Patch to each value; None without a patch.

    Raises BadRequestError, and ConflictError if a mask applies to the topic.
    """
    text = request.whole_text("patch", PATCH_SIZE_MAX).strip()
    if not text:
        return None
    if request.masks.cover(topic):
        raise ConflictError("a mask hides parts of these dead letters; redrive them without a patch")
    try:
        return patch_edit(parse_patch(text))
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the patch is not valid: {error}") from error


def redrive_action(client: Client, request: ActionRequest) -> Done:
    """Start a job that redrives the selected letters."""
    topic = request.values[0]
    client.topic(topic)
    return started(client, request, topic, chosen_of(request), edit_of(request, topic))


def started(
    client: Client,
    request: ActionRequest,
    topic: str,
    keep: Callable[[Entry], bool],
    edit: Callable[[Message], Message] | None,
) -> Done:
    group, to_main = group_for(client, request, topic), request.flag("to_main")
    rounds = request.number("rounds", ROUNDS_MAX, 1, 1000)

    def work(seat: PooledClients, job: Job) -> dict[str, Any]:
        scanned = 0

        def watched(entry: Entry) -> bool:
            nonlocal scanned
            scanned += 1
            if scanned % PROGRESS_EVERY == 0:
                job.go_on()
            return keep(entry)

        box = LetterBox(seat.client, group, topic)
        done = box.redrive(
            watched,
            to_main=to_main,
            edit=edit,
            rounds_max=rounds,
            on_sent=lambda count: job.go_on(job.done + count),
        )
        return {"letters sent": done.sent, "not sent, redriven too often": done.too_often}

    title = f"Redrive of {topic} to {'its main topic' if to_main else 'the retry topic of ' + group}"
    request.bench.deed.detail.update(group=group, to_main=to_main, edited=edit is not None)
    job = request.bench.desk.jobs.start("redrive", title, request.bench.deed, work)
    return Done(f"/jobs/{job.id}", {"job": job.id})


def resolve_action(client: Client, request: ActionRequest) -> Done:
    """Start a job that resolves the selected letters."""
    topic = request.values[0]
    client.topic(topic)
    group, keep = group_for(client, request, topic), chosen_of(request)
    by = request.bench.access.name or "console"

    def work(seat: PooledClients, job: Job) -> dict[str, Any]:
        box = LetterBox(seat.client, group, topic)
        origins = list(dict.fromkeys(entry.origin for entry in box.entries(keep) if entry.state != "resolved"))
        job.total = len(origins)
        job.go_on()
        if not origins:
            return {"records resolved": 0}
        resolved = box.resolve(origins, by)
        job.go_on(len(origins))
        starts = {f"{key} now starts at": offset for key, offset in resolved.starts.items()}
        return {"records resolved": len(resolved.records), "dead letters remaining": resolved.left, **starts}

    request.bench.deed.detail["group"] = group
    job = request.bench.desk.jobs.start("resolve", f"Resolve dead letters in {topic}", request.bench.deed, work)
    return Done(f"/jobs/{job.id}", {"job": job.id})


# --- one letter -------------------------------------------------------------------------------------------------------


def letter_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the data of the page about one letter: its error, and its value in a form for editing."""
    topic = request.values[0]
    place = TopicPartition(topic, whole(request.values[1], "partition"))
    offset = whole(request.values[2], "offset")
    entry = entry_at(client, request, place, offset)
    box = LetterBox(client, group_of(client, request, topic), topic)
    message = box.original(entry)
    _, reason = masked_letter(request, topic, entry)
    letter = entry.found.letter
    hidden = is_masked(request, entry, message)
    kind, value = ("null", "") if hidden else field_of_letter(request, message.value)
    return {
        "topic": topic,
        "partition": place.partition,
        "offset": offset,
        "state": entry.state,
        "record": visible(entry.origin),
        "origin_topic": letter.partition.topic,
        "origin_partition": letter.partition.partition,
        "origin_offset": letter.offset,
        "group": letter.group or group_of(client, request, topic),
        "failures": letter.attempt,
        "rounds": letter.rounds,
        "exception": visible(reason.exception),
        "cause": visible(reason.cause),
        "text": visible(reason.text),
        "stack": visible(reason.stack),
        "masked": hidden,
        "kind": kind,
        "kinds": EDITABLE,
        "value": value,
        "size": shown(message.value).size,
        "error": "",
    }


def field_of_letter(request: ActionRequest, raw: bytes | None) -> tuple[str, str]:
    """Return the form field (kind and text) for a letter's value, as `field_of` does. Avro is shown as hex.

    The form would encode Avro with the latest schema, but a redriven letter must keep the schema of its writer.
    """
    kind, text = field_of(request, raw)
    return ("hex", (raw or b"").hex(" ")) if kind == "avro" else (kind, text)


def is_masked(request: ActionRequest, entry: Entry, original: Message) -> bool:
    """Return whether a mask hides a part of the letter, or of the original record."""
    about = (entry.partition.topic, entry.message), (entry.found.letter.partition.topic, original)
    rows = [(topic, Record(each.offset, each.timestamp, *each[4:7])) for topic, each in about]
    return any(request.masks.masked(topic, record) != record for topic, record in rows)


def entry_at(client: Client, request: ActionRequest, place: TopicPartition, offset: int) -> Entry:
    """Return the letter at an offset. Raises NotFoundError, and BadRequestError if the topic has too many letters."""
    require_few(client, place.topic)
    box = LetterBox(client, request.text("group") or group_of(client, request, place.topic), place.topic)
    found = box.at(place, offset)
    if found is None:
        raise NotFoundError(f"{place}-{offset} is not a dead letter, or was deleted")
    return found


def redrive_edited_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    """Start a job that redrives one letter with the value in the form."""
    topic = request.values[0]
    place = TopicPartition(topic, whole(request.values[1], "partition"))
    offset = whole(request.values[2], "offset")
    entry = entry_at(client, request, place, offset)
    if is_masked(request, entry, LetterBox(client, "", topic).original(entry)):
        raise ConflictError("a mask hides a part of this dead letter, so it cannot be edited here")
    kind, text = request.choice("kind", EDITABLE), request.whole_text("value", SIZE_MAX)
    try:
        value = bytes_of(request, kind, text, "", "the value")
    except BadRequestError as error:
        return {**letter_page(client, request), "kind": kind, "value": text, "error": str(error)}
    return started(
        client,
        request,
        topic,
        lambda entry: entry.partition == place and entry.message.offset == offset,
        lambda message: message._replace(value=value),
    )
