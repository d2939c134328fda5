"""A raw socket that speaks Kafka 0.7's protocol, for tests: bytes out, frames in, and whether the broker hung up."""

import socket
import struct
from collections.abc import Callable
from typing import Self

from tests.kit.oracles import classic_oracle as oracle
from tests.kit.processes.broker import wait_until

TIMEOUT_S = 30.0


class ClassicClient:
    """One connection."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """(error code, body) of the next response; EOFError when the broker hung up."""
        (size,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(size)
        return struct.unpack_from(">h", body)[0], body[2:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return data

    def closed(self) -> bool:
        """Waits for the broker to hang up; False when it says something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, frame: bytes) -> tuple[int, bytes]:
        self.send(frame)
        return self.receive()

    def fetch(self, topic: str, partition: int, offset: int, size_max: int = 1 << 20) -> tuple[int, bytes]:
        return self.ask(oracle.fetch(topic, partition, offset, size_max))

    def offsets(self, topic: str, partition: int, time_ms: int = -1, count_max: int = 1) -> list[int]:
        code, body = self.ask(oracle.offsets(topic, partition, time_ms, count_max))
        assert code == 0
        return oracle.read_offsets(body)

    def read_all(self, topic: str, partition: int = 0, offset: int = 0) -> bytes:
        """Every visible byte from an offset on, fetch by fetch."""
        found = b""
        while True:
            code, data = self.fetch(topic, partition, offset + len(found))
            assert code == 0, code
            if not data:
                return found
            found += data

    def wait_for(self, topic: str, partition: int, end: int) -> None:
        """Until messages up to an offset are visible."""
        wait_until(lambda: self.offsets(topic, partition) == [end], TIMEOUT_S, f"{topic}-{partition} at {end}")


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, TIMEOUT_S, what)
