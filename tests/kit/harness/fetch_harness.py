"""Fetches on real logs without threads: connections of two workers on socket pairs, a clock turned by hand.

A request is served when it is sent; what other threads would do is done by `settle`. Nothing here waits for longer than
a socket's timeout, which is a failure.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite._native.serve.connection import Connection, WorkerResources
from kafkalite._native.serve.fetch import FetchServer
from kafkalite._native.serve.fetch_session import FetchSessionCache
from kafkalite._native.serve.produce import ProduceServer
from kafkalite._native.serve.transfer import Mailbox, OutBuffer
from kafkalite.base.clock import SystemClock
from kafkalite.broker.handlers.table import native_apis
from kafkalite.broker.log.manager import LogManager
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from kafkalite._native.serve.memory import MemoryCeiling

IDS_FROM = 13
PARTITION_BYTES = 1 << 20

Key = tuple[str | bytes, int]
"""A partition as requests name it: (topic's name, or its id from version 13 on; number)."""


class Wanted(NamedTuple):
    """A fetch of one partition."""

    key: Key
    offset: int = 0
    size_max: int = PARTITION_BYTES
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class Pool:
    """A fake I/O pool that runs its jobs when the test calls it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def submit(self, job: Callable[..., object], *arguments: object) -> None:
        self.jobs.append((job, arguments))

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job, arguments in jobs:
            job(*arguments)


class Worker:
    """The state that the connections of one network worker share."""

    def __init__(self, logs: LogManager, pool: Pool, sessions: FetchSessionCache, partitions_max: int) -> None:
        self.mailbox, out = Mailbox(), OutBuffer()
        produce = ProduceServer(
            logs.table, out, None, partitions_max=partitions_max, deferred_bytes_max=1 << 20, flush_on_acks_all=False
        )
        fetch = FetchServer(
            logs.table,
            out,
            self.mailbox,
            pool,
            sessions,
            partitions_max=partitions_max,
            response_size_max=1 << 25,
            copy_size_max=1 << 15,
        )
        self.closed: list[Connection] = []
        self.io = WorkerResources(
            self.mailbox,
            out,
            produce,
            fetch,
            lambda *_: None,
            lambda *_: None,
            self.closed.append,
            native_apis(),
            request_size_max=1 << 26,
            output_bytes_max=1 << 26,
            in_flight_max=100,
        )

    def takes_turns(self) -> bool:
        """Whether it has work left that it does in turns."""
        return self.io.next_deadline() == self.io.now


class Client:
    """One connection: sends fetches, receives what was answered."""

    def __init__(self, harness: FetchHarness, worker: Worker, listener: object, principal: object) -> None:
        self.harness, self.worker = harness, worker
        self.socket, server = socket.socketpair()
        for end in (self.socket, server):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.settimeout(20)
        server.setblocking(False)
        self.connection = Connection(worker.io, server, "127.0.0.1", 1, listener)
        self.connection.principal = principal

    def send(self, frame: bytes) -> None:
        """Sends a request and serves it."""
        self.worker.io.now = self.harness.now
        self.socket.sendall(frame)
        self.connection.on_event(selectors.EVENT_READ)

    def receive_bytes(self) -> bytes:
        """The next answer without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the connection was closed"
            data += piece
        return data

    def receive(self, version: int) -> Any:
        answer = self.receive_bytes()
        _, position = header.decode_response_header(api.FETCH, version, answer)
        return protocol.decode_response(api.FETCH, version, answer[position:])

    def is_answered(self) -> bool:
        """Whether an answer has come."""
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(20)

    def fetch(self, version: int, session: tuple[int, int], *wanted: Wanted, **fields: Any) -> Any:
        """The answer to a fetch that does not wait."""
        self.send(fetch_frame(version, session, wanted, **fields))
        self.harness.settle()
        return self.receive(version)

    def close(self) -> None:
        self.connection.close()
        self.socket.close()


class FetchHarness:
    """Real logs, one cache of sessions, two workers."""

    def __init__(
        self,
        directory: Path,
        *,
        slots_max: int = 10,
        partitions_max: int = 1000,
        eviction_ms: int = 120_000,
        request_partitions_max: int = 10_000,
        memory: MemoryCeiling | None = None,
    ) -> None:
        config = BrokerConfig.load(None, {"log.dirs": str(directory)})
        self.logs = LogManager(config, SystemClock(), on_fatal=print)
        self.logs.open()
        self.now = 1000.0
        self.pool = Pool()
        self.sessions = FetchSessionCache(
            slots_max=slots_max, partitions_max=partitions_max, eviction_ms=eviction_ms, memory=memory
        )
        self.workers = [Worker(self.logs, self.pool, self.sessions, request_partitions_max) for _ in range(2)]
        self.clients: list[Client] = []

    def client(self, worker: int = 0, *, listener: object = None, principal: object = None) -> Client:
        self.clients.append(Client(self, self.workers[worker], listener, principal))
        return self.clients[-1]

    def settle(self) -> None:
        """Lets the pool and the workers do what was given to them."""
        while self.pool.jobs or any(worker.mailbox or worker.takes_turns() for worker in self.workers):
            self.pool.run()
            for worker in self.workers:
                worker.io.now = self.now
                worker.io.handle_posted()
                if worker.takes_turns():
                    worker.io.expire_timers()

    def pass_time(self, seconds: float) -> None:
        """Turns the clock, and answers the fetches whose time is over."""
        self.now += seconds
        for worker in self.workers:
            worker.io.now = self.now
            worker.io.expire_timers()
        self.settle()

    def id_of(self, topic: str) -> bytes:
        return self.logs.topics[topic].id

    def key(self, version: int, topic: str, partition: int) -> Key:
        """How requests of this version name a partition of a topic that exists."""
        return (self.id_of(topic) if version >= IDS_FROM else topic, partition)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.logs.close()


def fetch_frame(
    version: int,
    session: tuple[int, int],
    wanted: Iterable[Wanted] = (),
    *,
    forget: Iterable[Key] = (),
    wait_ms: int = 0,
    size_min: int = 1,
    size_max: int = 1 << 25,
    replica: int = -1,
) -> bytes:
    """Return a Fetch request, with a `replica` a follower's (before version 15); a topic appears once for each run of
    consecutive entries.
    """
    topics = []
    for name, together in groupby(wanted, key=lambda want: want.key[0]):
        parts = [
            FetchPartition(
                partition=want.key[1],
                fetch_offset=want.offset,
                partition_max_bytes=want.size_max,
                **({"current_leader_epoch": want.leader_epoch} if version >= 9 else {}),
                **({"last_fetched_epoch": want.last_fetched_epoch} if version >= 12 else {}),
            )
            for want in together
        ]
        topics.append(FetchTopic(**_named("topic", (name, 0)), partitions=parts))
    forgotten = [ForgottenTopic(**_named("topic", key), partitions=[key[1]]) for key in forget]
    fields: dict[str, Any] = {"session_id": session[0], "session_epoch": session[1]} if version >= 7 else {}
    if forgotten:
        fields["forgotten_topics_data"] = forgotten
    if replica >= 0:
        fields["replica_id"] = replica
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=size_min, max_bytes=size_max, topics=topics, **fields)
    return protocol.encode_request_frame(api.FETCH, version, 1, "harness", request)


def _named(field: str, key: Key) -> dict[str, Any]:
    return {f"{field}_id": key[0]} if isinstance(key[0], bytes) else {field: key[0]}


def partitions_of(answer: Any) -> dict[Key, Any]:
    """The partitions of an answer by key, in its order; each may come once."""
    found: dict[Key, Any] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            key = (topic.topic or topic.topic_id, part.partition_index)
            assert key not in found, f"{key} twice in one answer"
            found[key] = part
    return found


def errors_of(answer: Any) -> dict[Key, int]:
    """The error code of each partition answered."""
    return {key: part.error_code for key, part in partitions_of(answer).items()}
