"""Send a record from a form, which is empty or filled from a message, and show the list of sent records.

    text    UTF-8, unchanged                hex     bytes            null    no value
    json    UTF-8, checked to be JSON       avro    JSON, encoded with the latest schema of TOPIC-key or TOPIC-value

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.avro.schema import SchemaError
from kafkalite.client.cluster import READ_COMMITTED
from kafkalite.client.write.partitioning import partition_of
from kafkalite.console.console_state import Sent
from kafkalite.console.messages import oldest, value_of
from kafkalite.console.rendering import HIDDEN
from kafkalite.console.requests import BadRequestError, ConflictError, Done, NotFoundError
from kafkalite.errors import KafkaError
from kafkalite.failures.names import parse_origin
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.action_context import ActionRequest
    from kafkalite.model import TopicPartition

KINDS: Final = ("text", "json", "avro", "hex", "null")
SIZE_MAX: Final = 512 * 1024
"""Maximum characters of a key or value in a form."""
HEADERS_SIZE_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 100
PARTITION_MAX: Final = 2**31 - 1


class Form(NamedTuple):
    """The contents of the form for a record."""

    topic: str = ""
    partition: str = ""
    key_kind: str = "null"
    key: str = ""
    value_kind: str = "text"
    value: str = ""
    headers: str = ""


def produce_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the form. With `like`, it is filled from a record."""
    like = request.text("like")
    if like:
        return page_of(request, form_like(client, request, like, request.text("topic")))
    blank = Form()._asdict()
    given = {name: request.whole_text(name, SIZE_MAX) or default for name, default in blank.items()}
    return page_of(request, Form(**given))


def page_of(request: ActionRequest, form: Form, error: str = "") -> dict[str, Any]:
    return {
        **form._asdict(),
        "kinds": [kind for kind in KINDS if kind != "avro" or request.bench.registry is not None],
        "error": error,
        "sent": request.bench.desk.sent()[:10],
    }


def sent_page(client: Client, request: ActionRequest) -> dict[str, Any]:
    """Return the records sent from this console, newest first."""
    del client
    return {"sent": request.bench.desk.sent()}


# --- from a record ----------------------------------------------------------------------------------------------------


def form_like(client: Client, request: ActionRequest, like: str, topic: str) -> Form:
    """Return the form filled from a record, which is named like orders-3-1842. Raises ConflictError for a
    masked record.
    """
    try:
        where, offset = parse_origin(like)
    except ValueError as error:
        raise BadRequestError(str(error)) from error
    record = record_at(client, where, offset)
    if request.masks.masked(where.topic, record) != record:
        raise ConflictError("a mask hides a part of this record, so a copy would contain the mask instead")
    key_kind, key = field_of(request, record.key)
    value_kind, value = field_of(request, record.value)
    return Form(topic or where.topic, "", key_kind, key, value_kind, value, headers_text(record.headers))


def record_at(client: Client, where: TopicPartition, offset: int) -> Record:
    """Return the record at an offset. Raises NotFoundError."""
    first, end = client.start_offset(*where), client.end_offset(*where, isolation=READ_COMMITTED)
    rows = list(oldest(client, where, offset, offset + 1, 1)) if first <= offset < end else []
    if not rows:
        raise NotFoundError(f"{where} has no record at offset {offset}")
    return rows[0][1]


def field_of(request: ActionRequest, raw: bytes | None) -> tuple[str, str]:
    """Return the form field (kind and text) for these bytes: Avro, JSON or text if possible, otherwise hex.

    Except for Avro, the form encodes the field to the same bytes again. Raises ConflictError for too many bytes.
    """
    if raw is None:
        return "null", ""
    if len(raw) > SIZE_MAX // 2:
        raise ConflictError(f"{len(raw)} bytes are too many for this form; use kafkalite produce")
    shown = value_of(request, raw, "avro")
    if shown.kind == "avro" and not shown.cut:
        return "avro", shown.text
    text = plain_text(raw)
    if text is None:
        return "hex", raw.hex(" ")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text", text
    return ("json", text) if text.lstrip()[:1] in {"{", "["} else ("text", text)


def plain_text(raw: bytes) -> str | None:
    """Decode bytes as text that the form sends back unchanged. None if this is not possible."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if HIDDEN.search(text) else text


def headers_text(headers: tuple[tuple[str, bytes | None], ...]) -> str:
    """Format headers as lines of name: value. If lines cannot represent them, format them as a JSON list."""
    lines = []
    for name, value in headers:
        text = None if value is None else plain_text(value)
        if text is None or text != text.strip() or "\n" in text or HIDDEN.search(name) or is_odd(name):
            rows = [[name, in_json(value)] for name, value in headers]
            return json.dumps(rows, ensure_ascii=True)
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def is_odd(name: str) -> bool:
    """Return whether a line `name: value` cannot represent this header name."""
    return not name or name != name.strip() or ":" in name or "\n" in name or name.startswith("[")


def in_json(value: bytes | None) -> object:
    text = None if value is None else plain_text(value)
    return text if value is None or text is not None else {"hex": value.hex()}


# --- to a record ------------------------------------------------------------------------------------------------------


def send_action(client: Client, request: ActionRequest) -> dict[str, Any] | Done:
    """Send the record in the form. If that fails, return the form with the error."""
    form = Form(
        request.text("topic"),
        request.text("partition"),
        request.text("key_kind", "null"),
        request.whole_text("key", SIZE_MAX),
        request.text("value_kind", "text"),
        request.whole_text("value", SIZE_MAX),
        request.whole_text("headers", HEADERS_SIZE_MAX),
    )
    try:
        return sent(client, request, form)
    except (BadRequestError, RegistryRefused, RegistryUnreachable, SchemaError) as error:
        return page_of(request, form, str(error))
    except KafkaError as error:
        return page_of(request, form, f"{error} ({error.name})")


def sent(client: Client, request: ActionRequest, form: Form) -> Done:
    """Send the record. Raises BadRequestError, KafkaError, ClientError."""
    if not form.topic:
        raise BadRequestError("enter a topic")
    topic = client.topic(form.topic)
    if topic.is_internal:
        raise BadRequestError(f"{form.topic} is an internal topic, which only the brokers write")
    key = bytes_of(request, form.key_kind, form.key, f"{form.topic}-key", "the key")
    value = bytes_of(request, form.value_kind, form.value, f"{form.topic}-value", "the value")
    count = len(topic.partitions)
    if form.partition:
        number = request.number("partition", 0, 0, PARTITION_MAX)
        if number >= count:
            raise BadRequestError(f"{form.topic} has {count} partitions, numbered from 0")
    else:
        number = secrets.randbelow(count) if key is None else partition_of(key, count)
    now = time.time_ns() // 1_000_000
    record = Record(-1, now, key, value, parse_headers(form.headers))
    offset = client.produce(form.topic, number, [record]).first_offset
    size = len(key or b"") + len(value or b"")
    request.bench.desk.note_sent(Sent(now, request.bench.access.name, form.topic, number, offset, size))
    request.bench.deed.detail.update(topic=form.topic, partition=number, offset=offset, size=size)
    place = f"/topics/{quote(form.topic, safe='')}/messages/{number}/{offset}"
    return Done(f"{place}?done=sent", {"topic": form.topic, "partition": number, "offset": offset})


def bytes_of(request: ActionRequest, kind: str, text: str, subject: str, what: str) -> bytes | None:
    """Encode a form field as bytes. Raises BadRequestError."""
    match kind:
        case "null":
            if text.strip():
                raise BadRequestError(f"{what} is set to null, but its field is not empty")
            return None
        case "hex":
            try:
                return bytes.fromhex(text)
            except ValueError:
                raise BadRequestError(f"{what} is not hexadecimal; expected pairs of digits, such as 00 ff") from None
        case "json":
            parsed(text, what)
        case "avro":
            return avro_of(request, text, subject, what)
        case "text":
            pass
        case _:
            raise BadRequestError(f"{what} must be one of {', '.join(KINDS)}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequestError(f"{what} contains half of a surrogate pair, which UTF-8 cannot encode") from None


def parsed(text: str, what: str) -> Any:
    """Parse JSON. Raises BadRequestError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise BadRequestError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise BadRequestError(f"{what} is not valid JSON: {error}") from None


def avro_of(request: ActionRequest, text: str, subject: str, what: str) -> bytes:
    """Encode Avro with the registry's latest schema."""
    registry = request.bench.registry
    if registry is None:
        raise BadRequestError("Avro requires a schema registry; start the console with --registry")
    from kafkalite.avro.from_documents import encoded

    try:
        return encoded(registry, subject, parsed(text, what))
    except RegistryRefused as error:
        raise BadRequestError(f"{what}, subject {subject}: {error}") from error
    except ValueError as error:
        why = f"{what} does not match the schema of {subject}"
        request.bench.deed.detail["why"] = why  # the error quotes names of the document
        raise BadRequestError(f"{why}: {error}") from error


def parse_headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """Parse lines of name: value, or a JSON list of [name, value].

    Raises BadRequestError, which quotes no line or header, since the audit stores it.
    """
    if text.lstrip().startswith("["):
        rows = parsed(text, "headers")
        found = tuple(header_of(number, row) for number, row in enumerate(rows, 1))
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        found = tuple(line_of(number, line) for number, line in lines)
    if len(found) > HEADERS_MAX:
        raise BadRequestError(f"this page sends at most {HEADERS_MAX} headers per record")
    return found


def line_of(number: int, line: str) -> tuple[str, bytes | None]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise BadRequestError(
            f"line {number} of the headers is not a header; write name: value on each line, or a JSON list of all"
        )
    return name.strip(), value.strip().encode(errors="replace")


def header_of(number: int, row: Any) -> tuple[str, bytes | None]:
    match row:
        case [str(name), None]:
            return whole_name(name), None
        case [str(name), str(value)]:
            return whole_name(name), value.encode(errors="replace")
        case [str(name), {"hex": str(value)}]:
            try:
                return whole_name(name), bytes.fromhex(value)
            except ValueError:
                raise BadRequestError(f"header {number} is not hexadecimal") from None
    raise BadRequestError('headers must be of the form [["name", "text"], ["name", null], ["name", {"hex": "00ff"}]]')


def whole_name(name: str) -> str:
    """Return a header name with question marks for halves of surrogate pairs, which JSON allows and records do not."""
    return name.encode(errors="replace").decode()
