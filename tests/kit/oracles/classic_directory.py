"""Directories of Kafka 0.7 in plain Python, written from its description alone: built byte by byte, and read.

Shares nothing with kafkalite, but for gzip and snappy, which are other people's.
"""

import gzip
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import cramjam

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_DIRECTORY = re.compile(r"(.+)-(\d+)")
_SEGMENT = re.compile(r"(\d{20})\.kafka")
_SNAPPY_STREAM = b"\x82SNAPPY\x00"


class NotKafka07(Exception):
    """Bytes or names that are not as described."""


def build(root: Path, partitions: Mapping[str, tuple[int, Sequence[bytes]]], *, clean: bool = False) -> None:
    """A `log.dir`: `<topic>-<partition>` to the offset of its first segment and the content of each."""
    root.mkdir(parents=True)
    for name, (start, contents) in partitions.items():
        folder = root / name
        folder.mkdir()
        for content in contents:
            (folder / f"{start:020d}.kafka").write_bytes(content)
            start += len(content)
    if clean:
        (root / CLEAN_SHUTDOWN).touch()


def read(root: Path) -> dict[tuple[str, int], tuple[int, list[bytes]]]:
    """Return each (topic, partition)'s first offset and payloads, wrappers opened. Raise NotKafka07 for any fault."""
    found = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        match = _DIRECTORY.fullmatch(folder.name)
        if match is None:
            raise NotKafka07(f"the directory {folder.name} has no topic and partition")
        start, data = _segments(folder)
        found[match[1], int(match[2])] = (start, list(_payloads(data)))
    return found


def _segments(folder: Path) -> tuple[int, bytes]:
    """Where the log starts, and its bytes: each file begins where the one before ends."""
    start, data = -1, b""
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".kafka"):
        match = _SEGMENT.fullmatch(path.name)
        if match is None:
            raise NotKafka07(f"{path.name} is not named by 20 digits")
        if start < 0:
            start = int(match[1])
        elif int(match[1]) != start + len(data):
            raise NotKafka07(f"{path.name} begins elsewhere than at {start + len(data)}")
        data += path.read_bytes()
    return start, data


def _payloads(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            raise NotKafka07(f"a torn size at {at}")
        (size,) = struct.unpack_from(">i", data, at)
        if size < 5 or at + 4 + size > len(data):
            raise NotKafka07(f"a message of {size} bytes at {at}")
        message = data[at + 4 : at + 4 + size]
        at += 4 + size
        magic = message[0]
        if magic not in (0, 1):
            raise NotKafka07(f"magic {magic}")
        codec = message[1] & 3 if magic else 0
        (crc,) = struct.unpack_from(">I", message, 1 + magic)
        payload = message[5 + magic :]
        if zlib.crc32(payload) != crc:
            raise NotKafka07(f"the checksum before {at}")
        if codec == 0:
            yield payload
        elif codec == 1:
            yield from _payloads(gzip.decompress(payload))
        elif codec == 2:
            yield from _payloads(_snappy(payload))
        else:
            raise NotKafka07("codec 3")


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_SNAPPY_STREAM):
        return bytes(cramjam.snappy.decompress_raw(payload))
    at, found = 16, b""
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        found += bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
