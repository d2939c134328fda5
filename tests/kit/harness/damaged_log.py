"""Damage in a topic's log, for tests of what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.client import Client

if TYPE_CHECKING:
    from pathlib import Path


def fill(servers: str, topic: str = "orders", count: int = 1000) -> None:
    """Three produces of `count` records each, whose values are their offsets."""
    with Client(servers) as client:
        client.admin.create_topic(topic, 1)
        for first in range(0, 3 * count, count):
            client.produce(topic, 0, [b"%d" % number for number in range(first, first + count)])


def flip_four_bytes(data: Path, topic: str = "orders", at: bytes = b"1500") -> None:
    """Of this value in the partition's only segment: in the middle of it."""
    (log,) = (data / f"{topic}-0").glob("*.log")
    with log.open("r+b") as file:
        place = file.read().index(at)
        file.seek(place)
        file.write(bytes(byte ^ 0xFF for byte in at))


FIELDS: Final = {
    "base offset": (0, b"\0\0\0\0\0\x76\xad\xf1"),
    "length": (8, b"\0\0\x01\0"),
    "huge length": (8, b"\x40\0\0\0"),
    "negative length": (8, b"\xff\xff\xff\xfb"),
    "magic": (16, b"\x07"),
    "checksum": (17, b"\0\0\0\0"),
    "attributes": (22, b"\x04"),
    "last offset delta": (23, b"\0\0\x07\xd0"),
    "count": (57, b"\0\0\x04\0"),
    "zeros": (0, bytes(61)),
}
"""By name: where in a batch's header, and what is written there."""
CUT: Final = "cut"
DAMAGES: Final = (*FIELDS, CUT)


def damage_second_batch(data: Path, how: str, topic: str = "orders") -> None:
    """Write into its header, or cut the file inside of it; the broker has to be stopped."""
    (log,) = (data / f"{topic}-0").glob("*.log")
    with log.open("r+b") as file:
        start = 12 + int.from_bytes(file.read(12)[8:], "big")
        if how == CUT:
            file.truncate(start + 100)
        else:
            at, raw = FIELDS[how]
            file.seek(start + at)
            assert file.read(len(raw)) != raw
            file.seek(start + at)
            file.write(raw)
