"""Define small immutable types, and rules for topic names and ids, that several packages share.

No I/O, no locks.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from kafkalite.base import randomness
from kafkalite.base.dataclass import dataclass

TOPIC_NAME_SIZE_MAX: Final = 249
"""Kafka's own bound: directory names are `<topic>-<partition>`, and file systems stop at 255 bytes."""

NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
"""The characters that a topic name may contain."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that the broker writes itself. Clients may read them, but not produce to them or create them."""

OFFSET_LATEST: Final = -1
OFFSET_EARLIEST: Final = -2
OFFSET_MAX_TIMESTAMP: Final = -3
OFFSET_EARLIEST_LOCAL: Final = -4
OFFSET_LATEST_TIERED: Final = -5

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1

ZERO_UUID: Final = bytes(16)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndTimestamp(NamedTuple):
    """The result of a lookup of an offset by time. `timestamp` is in ms since 1970, or -1 if the record has none."""

    offset: int
    timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH


ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a client that has not authenticated."""


class ScramCredential(NamedTuple):
    """The stored SCRAM credential of a user (RFC 5802). It contains no password, and cannot be used to authenticate."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a listener that clients receive in metadata. It may differ from the bound address."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def topic_name_error(name: str, size_max: int = TOPIC_NAME_SIZE_MAX) -> str | None:
    """Return why a topic cannot have this name, as one sentence; None if it can."""
    if not name:
        return "a topic name must not be empty"
    if name in {".", ".."}:
        return f"a topic cannot be named {name!r}"
    if len(name) > size_max:
        return f"a topic name can have at most {size_max} characters, not {len(name)}"
    if not NAME_CHARACTERS.issuperset(name):
        return f"topic name {name[:64]!r} has a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def topic_names_collide(first: str, second: str) -> bool:
    """Return whether two topic names differ only in '.' and '_'.

    Kafka does not allow both topics, because their metrics would have the same name.
    """
    return len(first) == len(second) and first.replace(".", "_") == second.replace(".", "_")


def new_uuid() -> bytes:
    """Return a random topic id (UUID version 4) as 16 bytes.

    Ids that Kafka would print with a leading '-' are not used.
    """
    while True:
        raw = bytearray(randomness.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        value = bytes(raw)
        if not uuid_text(value).startswith("-"):
            return value


def uuid_text(value: bytes) -> str:
    """Return an id in the form of Kafka's tools: 22 characters of URL-safe base64 without padding."""
    assert len(value) == 16, f"an id has 16 bytes, not {len(value)}"
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of an id in the form of Kafka's tools. ValueError if the text is invalid."""
    if len(text) != 22 or not text.isascii():
        raise ValueError(f"{text[:64]!r} is not an id of 22 characters")
    value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    if len(value) != 16:
        raise ValueError(f"{text!r} does not encode 16 bytes")
    return value
