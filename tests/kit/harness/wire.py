"""Kafka frames by hand, for tests that need to say exactly which bytes go out and see exactly which come back.

Written from the protocol's field lists only, without kafkalite's codec, so that a mistake in one is not repeated in the
other. Only non-flexible versions, which are enough to produce, fetch, ask for offsets, make topics, get a producer
id, find a group's coordinator and commit its positions: Produce 3-7, Fetch 4-11, ListOffsets 2, CreateTopics 2,
DeleteTopics 1, InitProducerId 1, FindCoordinator 0, OffsetCommit 2. `Connection` is one blocking socket; not
thread-safe.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH_HEADER_SIZE = 61
CRC_START = 21


class Closed(ConnectionError):
    """The broker closed the connection."""


# ---- primitives ------------------------------------------------------------------------------------------------------
def i8(value: int) -> bytes:
    return struct.pack(">b", value)


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def string(text: str | None) -> bytes:
    if text is None:
        return i16(-1)
    data = text.encode()
    return i16(len(data)) + data


def blob(data: bytes | None) -> bytes:
    return i32(-1) if data is None else i32(len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return i32(len(parts)) + b"".join(parts)


def varint(value: int) -> bytes:
    """Zig-zag, as in records."""
    unsigned = (value << 1) ^ (value >> 63)
    unsigned &= (1 << 64) - 1
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


class Reader:
    """Reads an answer from front to back; reading over the end raises."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise ValueError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, form: str) -> int:
        return int(struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0])

    def i8(self) -> int:
        return self.number("b")

    def i16(self) -> int:
        return self.number("h")

    def i32(self) -> int:
        return self.number("i")

    def i64(self) -> int:
        return self.number("q")

    def string(self) -> str | None:
        size = self.i16()
        return None if size < 0 else self.take(size).decode()

    def blob(self) -> bytes | None:
        size = self.i32()
        return None if size < 0 else self.take(size)

    def varint(self) -> int:
        shift = value = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def expect_end(self) -> None:
        if self.position != len(self.data):
            raise ValueError(f"{len(self.data) - self.position} bytes too many")


# ---- record batches --------------------------------------------------------------------------------------------------
class Record(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_delta: int = 0


def encode_record(record: Record, offset_delta: int) -> bytes:
    body = bytearray(b"\0" + varint(record.timestamp_delta) + varint(offset_delta))
    for data in (record.key, record.value):
        body += varint(-1) if data is None else varint(len(data)) + data
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)
    return varint(len(body)) + bytes(body)


def encode_records(records: Sequence[Record]) -> bytes:
    return b"".join(encode_record(record, number) for number, record in enumerate(records))


def seal_batch(
    payload: bytes,
    count: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    crc: int | None = None,
    batch_length: int | None = None,
) -> bytes:
    """A batch around an encoded (perhaps compressed) payload; any field may be given wrong on purpose."""
    now = time.time_ns() // 1_000_000 if base_timestamp is None else base_timestamp
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        now,
        now if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    tail += payload
    length = len(tail) + 9 if batch_length is None else batch_length
    checksum = crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, checksum) + tail


def batch_of(records: Sequence[Record], **fields: int) -> bytes:
    return seal_batch(encode_records(records), len(records), **fields)


class Batch(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    payload: bytes
    crc_is_right: bool

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def split_batches(data: bytes) -> list[Batch]:
    """All batches in `data`; a cut-off one at the end raises, since kafkalite never sends one."""
    batches = []
    position = 0
    while position < len(data):
        if len(data) - position < BATCH_HEADER_SIZE:
            raise ValueError("cut-off batch header")
        fields = BATCH_HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data) or fields[1] < BATCH_HEADER_SIZE - 12:
            raise ValueError("cut-off batch")
        right = crc32c(data[position + CRC_START : end]) == fields[4]
        batches.append(Batch(*fields, data[position + BATCH_HEADER_SIZE : end], right))
        position = end
    return batches


def decode_records(batch: Batch) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of each record of an uncompressed batch."""
    reader = Reader(batch.payload)
    rows = []
    for _ in range(batch.count):
        end = reader.varint() + reader.position
        reader.i8()
        reader.varint()
        offset = batch.base_offset + reader.varint()
        data = []
        for _ in range(2):
            size = reader.varint()
            data.append(None if size < 0 else reader.take(size))
        reader.position = end
        rows.append((offset, data[0], data[1]))
    reader.expect_end()
    return rows


# ---- requests --------------------------------------------------------------------------------------------------------
def header(api_key: int, version: int, correlation_id: int, client_id: str | None = "wire") -> bytes:
    return i16(api_key) + i16(version) + i32(correlation_id) + string(client_id)


def frame(payload: bytes) -> bytes:
    return i32(len(payload)) + payload


def produce_body(
    topic: str,
    batches: Sequence[tuple[int, bytes | None]],
    *,
    version: int = 7,
    acks: int = 1,
    transactional_id: str | None = None,
) -> bytes:
    del version  # 3 to 8 look the same
    partitions = array(i32(partition) + blob(batch) for partition, batch in batches)
    return string(transactional_id) + i16(acks) + i32(30_000) + array([string(topic) + partitions])


class Fetched(NamedTuple):
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: bytes
    last_stable_offset: int = -1
    aborted: list[tuple[int, int]] | None = None  # (producer id, first offset)


def fetch_body(
    topic: str,
    offsets: Sequence[tuple[int, int]],
    *,
    version: int = 11,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation: int = 0,
) -> bytes:
    body = i32(-1) + i32(max_wait_ms) + i32(min_bytes) + i32(max_bytes) + i8(isolation)
    if version >= 7:
        body += i32(0) + i32(-1)
    partitions = []
    for partition, offset in offsets:
        epoch = i32(-1) if version >= 9 else b""
        start = i64(-1) if version >= 5 else b""
        partitions.append(i32(partition) + epoch + i64(offset) + start + i32(partition_max_bytes))
    body += array([string(topic) + array(partitions)])
    if version >= 7:
        body += array([])
    return body + (string("") if version >= 11 else b"")


def parse_fetch(data: bytes, version: int = 11) -> list[Fetched]:
    reader = Reader(data)
    reader.i32()
    if version >= 7:
        error = reader.i16()
        reader.i32()
        if error:
            raise ValueError(f"fetch error {error}")
    found = []
    for _ in range(reader.i32()):
        reader.string()
        for _ in range(reader.i32()):
            partition, error, high = reader.i32(), reader.i16(), reader.i64()
            stable = reader.i64()
            start = reader.i64() if version >= 5 else -1
            count = reader.i32()
            aborted = [(reader.i64(), reader.i64()) for _ in range(count)] if count >= 0 else None
            if version >= 11:
                reader.i32()
            found.append(Fetched(partition, error, high, start, reader.blob() or b"", stable, aborted))
    reader.expect_end()
    return found


def offset_commit_body(group: str, topic: str, offsets: Sequence[tuple[int, int]]) -> bytes:
    """Return a version 2 request without a member: (partition, offset)."""
    partitions = array(i32(partition) + i64(offset) + string("") for partition, offset in offsets)
    return string(group) + i32(-1) + string("") + i64(-1) + array([string(topic) + partitions])


class Produced(NamedTuple):
    partition: int
    error: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int


def parse_produce(data: bytes, version: int = 7) -> list[Produced]:
    reader = Reader(data)
    found = []
    for _ in range(reader.i32()):
        reader.string()
        for _ in range(reader.i32()):
            partition, error, base, append_time = reader.i32(), reader.i16(), reader.i64(), reader.i64()
            found.append(Produced(partition, error, base, append_time, reader.i64() if version >= 5 else -1))
    reader.i32()
    reader.expect_end()
    return found


class Connection:
    """One socket to the broker, with correlation ids counted and checked."""

    def __init__(
        self,
        port: int,
        *,
        timeout_s: float = 30.0,
        receive_buffer: int | None = None,
        host: str = "127.0.0.1",
        source: str | None = None,
    ) -> None:
        """`source` is the address that the broker sees."""
        self.socket = socket.socket()
        if source is not None:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, api_key: int, version: int, body: bytes) -> int:
        """Sends a request; returns its correlation id."""
        self.correlation_id += 1
        self.send_bytes(frame(header(api_key, version, self.correlation_id) + body))
        return self.correlation_id

    def receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise Closed(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def receive(self) -> tuple[int, bytes]:
        """Correlation id and body (response header 0) of the next answer."""
        payload = self.receive_exactly(struct.unpack(">i", self.receive_exactly(4))[0])
        return struct.unpack_from(">i", payload)[0], payload[4:]

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        sent = self.send(api_key, version, body)
        received, answer = self.receive()
        if received != sent:
            raise ValueError(f"answer {received} to request {sent}")
        return answer

    def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        acks: int = 1,
        version: int = 7,
        transactional_id: str | None = None,
    ) -> Produced:
        body = produce_body(topic, [(partition, batch)], version=version, acks=acks, transactional_id=transactional_id)
        return parse_produce(self.call(PRODUCE, version, body), version)[0]

    def fetch(self, topic: str, partition: int, offset: int, *, version: int = 11, **limits: int) -> Fetched:
        body = fetch_body(topic, [(partition, offset)], version=version, **limits)
        return parse_fetch(self.call(FETCH, version, body), version)[0]

    def list_offset(self, topic: str, partition: int, timestamp: int, *, isolation: int = 0) -> tuple[int, int, int]:
        """(error, timestamp, offset); timestamp -1 asks for the end, -2 for the start."""
        body = i32(-1) + i8(isolation) + array([string(topic) + array([i32(partition) + i64(timestamp)])])
        reader = Reader(self.call(LIST_OFFSETS, 2, body))
        reader.i32()
        assert reader.i32() == 1
        reader.string()
        assert reader.i32() == 1
        reader.i32()
        return reader.i16(), reader.i64(), reader.i64()

    def find_coordinator(self, group: str) -> tuple[int, str, int]:
        """Error, host and port."""
        reader = Reader(self.call(FIND_COORDINATOR, 0, string(group)))
        error, _, host, port = reader.i16(), reader.i32(), reader.string(), reader.i32()
        return error, host or "", port

    def create_topic(self, name: str, partition_count: int = 1, configs: dict[str, str] | None = None) -> int:
        """Kafka's error code."""
        settings = array(string(key) + string(value) for key, value in (configs or {}).items())
        topic = string(name) + i32(partition_count) + i16(1) + array([]) + settings
        reader = Reader(self.call(CREATE_TOPICS, 2, array([topic]) + i32(30_000) + i8(0)))
        reader.i32()
        reader.i32()
        reader.string()
        return reader.i16()

    def delete_topic(self, name: str) -> int:
        reader = Reader(self.call(DELETE_TOPICS, 1, array([string(name)]) + i32(30_000)))
        reader.i32()
        reader.i32()
        reader.string()
        return reader.i16()

    def producer_id(self) -> tuple[int, int]:
        """A new producer id and its epoch."""
        reader = Reader(self.call(INIT_PRODUCER_ID, 1, string(None) + i32(60_000)))
        reader.i32()
        error = reader.i16()
        if error:
            raise ValueError(f"InitProducerId: error {error}")
        return reader.i64(), reader.i16()

    def read_partition(self, topic: str, partition: int) -> list[tuple[int, bytes | None, bytes | None]]:
        """Every record of an uncompressed partition, from log start to the end, each batch's CRC checked."""
        offset = self.list_offset(topic, partition, -2)[2]
        end = self.list_offset(topic, partition, -1)[2]
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        while offset < end:
            answer = self.fetch(topic, partition, offset, partition_max_bytes=8 << 20)
            if answer.error or not answer.records:
                raise ValueError(f"{topic}-{partition}@{offset}: error {answer.error}, {len(answer.records)} bytes")
            for batch in split_batches(answer.records):
                if not batch.crc_is_right:
                    raise ValueError(f"{topic}-{partition}@{batch.base_offset}: CRC differs")
                rows += [row for row in decode_records(batch) if row[0] >= offset]
                offset = batch.next_offset
        return rows

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
