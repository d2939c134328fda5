"""Match records against a question: the text to find, and the places in a record to search.

    header:correlation-id   the value of a header with that name; header:* for any header
    key                     the key
    value                   the value as text
    json:$.order.id         a value of a JSON document: a string, a number as it is written, true or false
    avro:order.id           a field of an Avro value in the registry's format: a string, an int or a long, a UUID
    key-json:$.id           the same in a JSON key
    key-avro:id             the same in an Avro key

The text is compared in one of four ways:

    is         header, key, json, avro: the whole content equals the text
               header, key: the content may also be a UUID in 16 bytes, or a big-endian number in 4 or 8 bytes
               value: the text occurs as whole words; letters, digits, underscores and non-ASCII bytes
               belong to words
    begins     the content begins with the text
    contains   the content contains the text
    regex      an RE2 expression matches within the content

Thread rule: questions are immutable; a Matcher belongs to one thread at a time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite._native.wire.needles import BEGINS, HOLDS, HOLDS_WORD, IN_HEADERS, IN_KEY, IN_VALUE, IS, Needles
from kafkalite.base.regex import compiled
from kafkalite.track.document_paths import Path, parse_path, values_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalite.avro.documents import Documents
    from kafkalite.wire.record.columns import Record, RecordColumns

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
REGEX_BYTES_MAX: Final = 8 * 1024 * 1024
ID_SIZE_MAX: Final = 4096
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
ESCAPED: Final = re.compile(r"[\x00-\x1f\"\\\x7f]")
"""JSON characters that are, or may be, written with a backslash."""
ANY_HEADER: Final = "*"
PLACES_TEXT: Final = "header:NAME, key, value, json:PATH, avro:PATH, key-json:PATH or key-avro:PATH"


class Kind(StrEnum):
    """The kinds of places in a record."""

    KEY = "key"
    VALUE = "value"
    HEADER = "header"
    JSON = "json"
    AVRO = "avro"
    KEY_JSON = "key-json"
    KEY_AVRO = "key-avro"


JSON_KINDS: Final = frozenset({Kind.JSON, Kind.KEY_JSON})
AVRO_KINDS: Final = frozenset({Kind.AVRO, Kind.KEY_AVRO})
FIELDS: Final = {Kind.KEY: IN_KEY, Kind.KEY_JSON: IN_KEY, Kind.KEY_AVRO: IN_KEY, Kind.HEADER: IN_HEADERS}
"""The part of a record for needles, by place; others are in the value."""


class How(StrEnum):
    """How a value is compared with the text to find."""

    IS = "is"
    BEGINS = "begins"
    CONTAINS = "contains"
    REGEX = "regex"


class Place(NamedTuple):
    """A place in a record to search. `name` is a header's name; `path` is for JSON and Avro."""

    kind: Kind
    name: str = ""
    path: Path = ()

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value

    @property
    def is_json(self) -> bool:
        """Whether the place is inside a JSON document."""
        return self.kind in JSON_KINDS

    @property
    def is_avro(self) -> bool:
        """Whether the place is inside an Avro document."""
        return self.kind in AVRO_KINDS

    @property
    def in_key(self) -> bool:
        """Whether the place is the key or inside the key."""
        return FIELDS.get(self.kind) == IN_KEY


EVERYWHERE: Final = (Place(Kind.HEADER, ANY_HEADER), Place(Kind.KEY), Place(Kind.VALUE))
"""The default places of a question."""


def split_names(text: str) -> list[str]:
    """Split a text at commas, except commas inside brackets or quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, character in enumerate(text):
        if character == "'":
            quoted = not quoted
        elif not quoted and character in "[{(":
            depth += 1
        elif not quoted and character in "]})":
            depth -= 1
        elif character == "," and depth <= 0 and not quoted:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def parse_places(text: str) -> tuple[Place, ...]:
    """Parse places such as "header:correlation-id,key,json:$.id". Raises ValueError with the reason in one sentence."""
    places = [parse_place(part) for part in split_names(text)]
    if not places:
        raise ValueError(f"no place given; expected {PLACES_TEXT}")
    return tuple(dict.fromkeys(places))


def parse_place(text: str) -> Place:
    """Parse one place. Raises ValueError."""
    kind, separator, rest = text.partition(":")
    if kind in {Kind.KEY, Kind.VALUE} and not separator:
        return Place(Kind(kind))
    if kind == Kind.HEADER and rest:
        return Place(Kind.HEADER, rest)
    if kind in JSON_KINDS | AVRO_KINDS and rest:
        return Place(Kind(kind), rest, parse_path(rest))
    raise ValueError(f"{text!r} is not a place; expected {PLACES_TEXT}")


class Question:
    """A text and the places to search; see the module.

    Raises ValueError for an empty text, for a text that is too long, and for an invalid expression.
    """

    def __init__(
        self, text: str, places: Sequence[Place] = EVERYWHERE, how: How = How.IS, *, negated: bool = False
    ) -> None:
        self.text = text
        self.raw = text.encode(errors="surrogateescape")
        if not self.raw or len(self.raw) > ID_SIZE_MAX:
            raise ValueError(f"the id must have 1 to {ID_SIZE_MAX} bytes; it has {len(self.raw)}")
        self.places = tuple(places)
        self.how = how
        self.negated = negated
        self.expression = compiled(text, REGEX_BYTES_MAX) if how is How.REGEX else None
        self.binary = _binary(text) if how is How.IS else ()
        """Other encodings of the text as a key or header."""
        number = int(text) if NUMBER.fullmatch(text) and text != "-0" else None
        fits = number is not None and INT64_MIN <= number <= INT64_MAX
        self.number = number if how is How.IS and fits else None

    def rows(self) -> list[tuple[bytes, int, int]] | None:
        """Return the needles: byte strings. A matching record contains at least one. None if there are no needles.

        The reader decodes only records that contain a needle; without needles, it decodes every record.
        JSON escapes of the text and the varint of an Avro number are needles too. A negated question, or a question
        with a regular expression, has no needles.
        """
        if self.negated or self.how is How.REGEX:
            return None
        rows: list[tuple[bytes, int, int]] = []
        rule = {How.IS: IS, How.BEGINS: BEGINS, How.CONTAINS: HOLDS}[self.how]
        for place in self.places:
            field = FIELDS.get(place.kind, IN_VALUE)
            if place.kind in {Kind.KEY, Kind.HEADER}:
                rows += [(raw, field, rule) for raw in (self.raw, *self.binary)]
            elif place.kind is Kind.VALUE:
                rows.append((self.raw, field, HOLDS_WORD if self.how is How.IS else rule))
            elif place.is_json:
                rows.append((self.raw, field, HOLDS_WORD if self.how is How.IS else HOLDS))
                rows += [(escape, field, HOLDS) for escape in _escapes(self.text)]
            else:
                rows += [(raw, field, HOLDS) for raw in _avro_needles(self)]
        return rows


class Questions:
    """A text to find, in places of a record that depend on the topic.

    `rules` are (expression for a topic's whole name, places); the first rule that matches applies. `places` applies to
    all other topics.
    """

    def __init__(
        self,
        text: str,
        places: Sequence[Place] = EVERYWHERE,
        how: How = How.IS,
        *,
        negated: bool = False,
        rules: Iterable[tuple[str, Sequence[Place]]] = (),
    ) -> None:
        self.text = text
        self._rest = Question(text, places, how, negated=negated)
        self._rules = [(compiled(name), Question(text, own, how, negated=negated)) for name, own in rules]

    def of(self, topic: str) -> Question:
        """Return the question for this topic."""
        return next((question for name, question in self._rules if name.fullmatch(topic)), self._rest)

    def every(self) -> list[Question]:
        """Return all questions."""
        return [*(question for _, question in self._rules), self._rest]

    @property
    def needs_registry(self) -> bool:
        """Whether any place is Avro."""
        return any(place.is_avro for question in self.every() for place in question.places)


def needles_of(questions: Iterable[Question]) -> Needles:
    """Return the needles for a reader that serves all of these questions."""
    merged: dict[tuple[bytes, int], int] = {}
    for question in questions:
        rows = question.rows()
        if rows is None:
            return Needles()
        for raw, field, rule in rows:
            merged[raw, rule] = merged.get((raw, rule), 0) | field
    return Needles([(raw, fields, rule) for (raw, rule), fields in merged.items()])


def _binary(text: str) -> tuple[bytes, ...]:
    """Return the binary forms of a text: a UUID as 16 bytes, an integer as Kafka's int and long serializers do."""
    found: list[bytes] = []
    with contextlib.suppress(ValueError):
        found.append(uuid.UUID(text).bytes)
    if NUMBER.fullmatch(text):
        number = int(text)
        if INT64_MIN <= number <= INT64_MAX:
            found.append(number.to_bytes(8, "big", signed=True))
        if INT32_MIN <= number <= INT32_MAX:
            found.append(number.to_bytes(4, "big", signed=True))
    return tuple(found)


def _escapes(text: str) -> list[bytes]:
    """Return JSON escapes. A document that contains this text, but not its bytes, must contain one of them."""
    found = [b"\\u"]
    if "/" in text:
        found.append(b"\\/")
    if ESCAPED.search(text):
        found.append(b"\\")
    return found


def _avro_needles(question: Question) -> list[bytes]:
    found = [question.raw, *(raw for raw in question.binary if len(raw) == 16)]
    if question.number is not None:
        found.append(zigzag_varint(question.number))
    return found


def zigzag_varint(number: int) -> bytes:
    """Encode an int or a long as Avro does (specification 1.12, binary encoding)."""
    rest = (number << 1) ^ (number >> 63)
    rest &= 2**64 - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Number(str):
    """A number in a JSON document, as text, as it is written there."""

    __slots__ = ()


_JSON: Final = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)


class Matcher:
    """Matches records against a question. `documents` decodes Avro, and is required if a place is Avro."""

    def __init__(self, question: Question, documents: Documents | None = None) -> None:
        self._question = question
        self._documents = documents
        self._json = {place.in_key for place in question.places if place.is_json}
        self._avro = {place.in_key for place in question.places if place.is_avro}
        if self._avro and documents is None:
            raise ValueError("avro:PATH and key-avro:PATH require a schema registry")
        self.undecodable = 0
        """Number of keys and values that could not be decoded."""

    def found(self, columns: RecordColumns) -> Iterator[tuple[Record, int, tuple[Place, ...]]]:
        """Yield (record, timestamp type, matching places) of each matching record. A negated question has no places."""
        decoded: dict[bool, Sequence[object]] = {}
        for in_key in self._avro if len(columns) else ():
            assert self._documents is not None, "checked when it was made"
            decoded[in_key], failed = self._documents.decode(columns.keys if in_key else columns.values)
            self.undecodable += len(failed)
        types = None if columns.timestamp_types is None else columns.timestamp_types.tolist()
        for row, record in enumerate(columns.records()):
            parsed = {in_key: self._parsed(record.key if in_key else record.value) for in_key in self._json}
            places = tuple(
                place
                for place in self._question.places
                if self._fits(
                    place,
                    record,
                    parsed[place.in_key] if place.is_json else (),
                    decoded[place.in_key][row] if place.is_avro else None,
                )
            )
            if bool(places) is not self._question.negated:
                yield record, types[row] if types else 0, places

    def _parsed(self, raw: bytes | None) -> tuple[object, ...]:
        """Return the JSON document in a tuple; () if the bytes are not JSON."""
        if raw is None:
            return ()
        try:
            return (_JSON.decode(raw.decode()),)
        except (ValueError, RecursionError):
            self.undecodable += 1
            return ()

    def _fits(self, place: Place, record: Record, parsed: tuple[object, ...], document: object) -> bool:
        if place.kind is Kind.KEY:
            return self._is_field(record.key)
        if place.kind is Kind.VALUE:
            return self._in_value(record.value)
        if place.kind is Kind.HEADER:
            return any(self._is_field(value) for name, value in record.headers if place.name in {name, ANY_HEADER})
        if place.is_json:
            return any(self._is_json(leaf) for whole in parsed for leaf in values_at(whole, place.path))
        raw = (record.key if place.in_key else record.value) or b""
        return any(self._is_avro(leaf, raw) for leaf in values_at(document, place.path))

    def _is_field(self, raw: bytes | None) -> bool:
        if raw is None:
            return False
        if self._question.how is How.IS:
            return raw == self._question.raw or raw in self._question.binary
        return self._in_bytes(raw)

    def _in_bytes(self, raw: bytes) -> bool:
        question = self._question
        if question.expression is not None:
            return question.expression.search(raw.decode(errors="replace")) is not None
        return raw.startswith(question.raw) if question.how is How.BEGINS else question.raw in raw

    def _in_value(self, raw: bytes | None) -> bool:
        if raw is None:
            return False
        return holds_word(raw, self._question.raw) if self._question.how is How.IS else self._in_bytes(raw)

    def _is_json(self, leaf: object) -> bool:
        if isinstance(leaf, bool):
            return self._is_text("true" if leaf else "false")
        return isinstance(leaf, str) and self._is_text(leaf)

    def _is_avro(self, leaf: object, raw: bytes) -> bool:
        """Return whether an Avro value matches.

        An enum or bytes value never matches: the record does not contain its text. With `begins` and `contains`, a
        number never matches.
        """
        question = self._question
        if isinstance(leaf, int) and not isinstance(leaf, bool):
            return self._is_text(str(leaf)) if question.expression is not None else leaf == question.number
        if not isinstance(leaf, str):
            return False
        if question.expression is None and question.raw not in raw:
            return any(leaf == base64.b64encode(other).decode() for other in question.binary if len(other) == 16)
        return self._is_text(leaf)

    def _is_text(self, text: str) -> bool:
        question = self._question
        if question.expression is not None:
            return question.expression.search(text) is not None
        if question.how is How.IS:
            return text == question.text
        return text.startswith(question.text) if question.how is How.BEGINS else question.text in text


def holds_word(raw: bytes, word: bytes) -> bool:
    """Return whether `raw` contains the word. No letter, digit, underscore or non-ASCII character may continue it."""
    return _word(word).search(raw) is not None


def _word(word: bytes) -> Any:
    touching = rb"[0-9A-Za-z_\x80-\xff]"
    before = rb"(?<!%b)" % touching if re.match(touching, word) else b""
    after = rb"(?!%b)" % touching if re.match(touching, word[-1:]) else b""
    return re.compile(before + re.escape(word) + after)
