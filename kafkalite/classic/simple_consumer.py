"""Read message sets from one broker, by partition and offset (0.7's SimpleConsumer).

An offset is a byte position in the broker's log of the partition. After an I/O error a request is repeated once, on a
new connection.

Thread rule: any thread. A lock lets one request through at a time.

Source: Kafka 0.7.2 (`kafkalite.classic`, facts 1 and 2).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafkalite.classic import wire
from kafkalite.classic.channel import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S, Channel
from kafkalite.classic.errors import ClassicError, ConnectionFailed
from kafkalite.classic.messages import MessageSet
from kafkalite.classic.wire import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self


class SimpleConsumer:
    """Fetches from one broker (kafka.consumer.SimpleConsumer)."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        socket_timeout_s: float = SOCKET_TIMEOUT_S,
        buffer_size: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Create the consumer; its first request connects.

        `buffer_size` is the size in bytes of the socket's receive buffer. By default the kernel adapts it to the
        reader.
        """
        self._channel = Channel(
            host,
            port,
            connect_timeout_s=connect_timeout_s,
            socket_timeout_s=socket_timeout_s,
            receive_buffer_size=buffer_size,
        )
        self._lock = threading.Lock()
        self._closed = False

    def fetch(self, topic: str, partition: int, offset: int, size_max: int) -> MessageSet:
        """Fetch at most `size_max` bytes from an offset. The result is empty at the log's end.

        Raises OffsetOutOfRange and InvalidPartition.
        """
        request = FetchRequest(topic, partition, offset, size_max)
        body = self._ask(lambda: self._channel.request(wire.encode_fetch(request)))
        return MessageSet(wire.decode_fetch(body, request), offset)

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet | ClassicError]:
        """Fetch several partitions in one request. Return the message set or error of each, in order."""
        body = self._ask(lambda: self._channel.request(wire.encode_multifetch(requests)))
        return [
            part if isinstance(part, ClassicError) else MessageSet(part, request.offset)
            for part, request in zip(wire.decode_multifetch(body, requests), requests, strict=True)
        ]

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, count_max: int) -> list[int]:
        """Return the first offsets of segments that began before a time, at most `count_max`, newest first.

        The time is in ms, or LATEST or EARLIEST.
        """
        frame = wire.encode_offsets(topic, partition, time_ms, count_max)
        return wire.decode_offsets(self._ask(lambda: self._channel.request(frame)))

    def close(self) -> None:
        """Close the connection, even while another thread waits for a response."""
        self._closed = True
        self._channel.interrupt()
        with self._lock:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: Callable[[], memoryview]) -> memoryview:
        with self._lock:
            try:
                self._refuse_closed()
                return request()
            except ConnectionFailed:
                self._refuse_closed()
                return request()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConnectionFailed(f"the consumer of {self._channel.address} is closed")
