"""Valid frames of every kind as real clients send them, and ways to spoil them.

Four sources: `record_frames` listens between librdkafka and a broker and keeps one frame of each (api key, version);
`hand_made_frames` are those of tests.kit.harness.wire; `random_frames` fills every API at every version with arbitrary
legal content; `frames_with_ids` asks a running broker for the ids it puts in. `mutate` spoils a frame: flipped bytes,
cut, stretched, counts and lengths replaced by hostile ones, unknown tagged fields, another key or version in the
header. The outer length stays truthful.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from typing import Any

from tests.kit.harness import wire

HOSTILE_INTS = [0, -1, -2, 1, 2**31 - 1, -(2**31), 2**30, 1_000_000, 65_536]
HOSTILE_VARINTS = [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x80", b"\xff" * 10, b"\x00"]
TAGGED = b"\x03\x07\x02ab\x7f\x05hello\xff\x01\x00"


class FrameTap:
    """A proxy of one broker port that keeps a copy of the requests; for well-behaved clients only."""

    def __init__(self, target_port: int) -> None:
        self.frames: dict[tuple[int, int], bytes] = {}
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target_port))
                except OSError:
                    _close(client)
                    continue
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _exactly(client, 4)
                frame = _exactly(client, struct.unpack(">i", head)[0])
                self.frames.setdefault(struct.unpack_from(">hh", frame), frame)
                server.sendall(head + frame)
        _close(client, server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := server.recv(1 << 16):
                client.sendall(piece)
        _close(client, server)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = end.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def hand_made_frames(topic: str) -> list[bytes]:
    """Requests of the non-flexible versions; their topic is one the canary does not use."""
    batch = wire.batch_of([wire.Record(b"k", b"v" * 50), wire.Record(None, None, [(b"h", b"1")])])
    bodies: list[tuple[int, int, bytes]] = [(wire.API_VERSIONS, version, b"") for version in range(3)]
    bodies += [(wire.PRODUCE, v, wire.produce_body(topic, [(0, batch), (1, batch)])) for v in range(3, 9)]
    bodies += [(wire.FETCH, v, wire.fetch_body(topic, [(0, 0), (1, 0)], version=v)) for v in range(4, 12)]
    bodies += [(wire.METADATA, 4, wire.array([wire.string(topic)]) + b"\0")]
    bodies += [(wire.METADATA, 1, wire.array([wire.string(topic)]))]
    offsets = wire.array([wire.string(topic) + wire.array([wire.i32(0) + wire.i64(-1)])])
    bodies += [(wire.LIST_OFFSETS, 2, wire.i32(-1) + wire.i8(0) + offsets)]
    new_topic = wire.string(topic) + wire.i32(1) + wire.i16(1) + wire.array([]) + wire.array([])
    bodies += [(wire.CREATE_TOPICS, 2, wire.array([new_topic]) + wire.i32(1000) + wire.i8(1))]
    bodies += [(wire.DELETE_TOPICS, 1, wire.array([wire.string("nobody")]) + wire.i32(1000))]
    bodies += [(wire.INIT_PRODUCER_ID, 1, wire.string(None) + wire.i32(1000))]
    return [wire.header(key, version, 7) + body for key, version, body in bodies]


def frames_with_ids(port: int, topic: str, session_count: int = 60) -> list[bytes]:
    """Requests that hold what only this broker knows: its id of a topic, and fetch sessions it has opened."""
    from kafkalite.wire import protocol
    from kafkalite.wire.protocol import api
    from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
    from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    def fetch(version: int, session: tuple[int, int]) -> FetchRequest:
        parts = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(2)]
        forget = [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=[1])] if session[1] > 0 else []
        return FetchRequest(
            max_wait_ms=0,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=parts)],
            session_id=session[0],
            session_epoch=session[1],
            forgotten_topics_data=forget,
        )

    def frame(key: int, version: int, message: object) -> bytes:
        head = protocol.header.encode_request_header(key, version, 7, "ids")
        return head + protocol.encode_request(key, version, message)

    frames = []
    with wire.Connection(port) as connection:

        def ask(key: int, version: int, message: object) -> Any:
            connection.send_bytes(wire.frame(frame(key, version, message)))
            _, body = connection.receive()
            return protocol.decode_response(key, version, body[1:])  # behind the tags of the response header

        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        topic_id = ask(api.METADATA, 12, metadata).topics[0].topic_id
        for number in range(session_count):
            version = 12 + number % 6
            session = ask(api.FETCH, version, fetch(version, (0, 0))).session_id
            assert session, "the session was declined"
            frames.append(frame(api.FETCH, version, fetch(version, (session, 1))))
    frames += [frame(api.FETCH, version, fetch(version, (0, 0))) for version in range(12, 18)]
    batch = wire.batch_of([wire.Record(b"k", b"v" * 50)])
    data = [PartitionProduceData(index=0, records=batch)]
    for version in (9, 12, 13):
        topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
        frames.append(frame(api.PRODUCE, version, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)))
    return frames


def random_frames(seed: int, per_version: int = 2) -> list[bytes]:
    """Legal requests of every API and version known, served or not."""
    from kafkalite.wire import protocol
    from tests.kit.harness.random_messages import EVERY_MESSAGE, REQUEST, MessageMaker

    maker, frames = MessageMaker(seed), []
    for key, version, direction in EVERY_MESSAGE * per_version:
        if direction == REQUEST:
            head = protocol.header.encode_request_header(key, version, 7, "random")
            frames.append(head + protocol.encode_request(key, version, maker.make(key, version, REQUEST)))
    return frames


def record_frames(tap: FrameTap, topic: str) -> list[bytes]:
    """One frame of each kind that librdkafka sends, when the broker behind the tap advertises the tap's port."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

    bootstrap = {"bootstrap.servers": f"127.0.0.1:{tap.port}"}
    admin = AdminClient(bootstrap)
    with contextlib.suppress(Exception):
        admin.create_topics([NewTopic(topic, 2)])[topic].result(5)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    partition = TopicPartition(topic, 0)
    for call in (
        lambda: admin.describe_configs([resource]),
        lambda: admin.create_partitions([NewPartitions(topic, 3)]),
        lambda: admin.delete_records([TopicPartition(topic, 0, 0)]),
        lambda: admin.list_offsets({partition: OffsetSpec.latest()}),
        lambda: admin.delete_topics(["nobody"]),
    ):
        for future in call().values():
            with contextlib.suppress(Exception):
                future.result(5)
    with contextlib.suppress(Exception):
        admin.describe_cluster().result(5)
    producer = Producer({**bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for number in range(20):
        producer.produce(topic, f"value-{number}".encode() * 10, b"key", 0)
    producer.flush(5)
    consumer = Consumer({**bootstrap, "group.id": "tap", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(5, 2)
    consumer.close()
    return list(tap.frames.values())


def mutate(frame: bytes, chance: random.Random) -> bytes:
    """The spoiled frame, outer length included."""
    data = bytearray(frame)
    kind = chance.randrange(8)
    if kind == 0:
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        del data[chance.randrange(len(data)) :]
    elif kind == 2:
        data[chance.randrange(4, len(data)) :] = chance.randbytes(chance.randint(0, 64))
    elif kind == 3:
        position = chance.randrange(8, max(9, len(data) - 4))
        data[position : position + 4] = struct.pack(">i", chance.choice(HOSTILE_INTS))
    elif kind == 4:
        position = chance.randrange(8, max(9, len(data)))
        data[position : position + 1] = chance.choice(HOSTILE_VARINTS)
    elif kind == 5:
        position = chance.randrange(8, max(9, len(data)))
        data[position:position] = TAGGED
    elif kind == 6:
        struct.pack_into(">hh", data, 0, chance.choice([*range(-1, 100), 32_767]), chance.randrange(-1, 20))
    else:
        start = chance.randrange(len(data))
        data[start : start + chance.randint(1, 16)] = b""
    return struct.pack(">i", len(data)) + bytes(data)
