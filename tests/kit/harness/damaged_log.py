"""Damage in a topic's log, for tests of what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
