"""An attacker: a process that sends requests again and again over several connections, and parses none of the answers.

    Flood(port, [frame], connections=4, in_flight=1) ── starts ──▶ python -m tests.kit.hostile.flood
        .run(seconds)       sends until the time is over, then closes its connections, answered or not
        .run(requests=9)    … or until each connection has its answers

Connections come from 127.0.0.2 and up, so that the honest client, at 127.0.0.1, is another address. The frames are
built once, by the caller; of several, each connection sends all, in turn. Answers are skipped in the kernel
(MSG_TRUNC): only their lengths are read. A connection that the broker closes is opened again, RECONNECTS_MAX times at
most.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

FIRST_ADDRESS = 2
RECONNECTS_MAX = 200
RECONNECT_PAUSE_S = 0.02
PIECE = 1 << 20
UNIT_SIZE_MAX = 256 << 10
TRICKLE_S = 0.2
CONNECT_S = 5.0
GRACE_S = 60.0
"""How long over its time a process may be silent before it counts as lost."""


class Program:
    """A helper process that takes a line of JSON for each thing to do, and answers with one."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[3],
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, order: Mapping[str, Any]) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()

    def end(self, timeout_s: float) -> dict[str, Any]:
        """The answer to what was begun; TimeoutError when it does not come."""
        stdout = self.process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"{self.process.args}: no answer in {timeout_s:g} s")
        line = stdout.readline()
        if not line:
            raise ConnectionError(f"{self.process.args} ended with status {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Flood(Program):
    """The process that floods a broker with frames.

    `addresses` of the loopback share the connections. Without `reads` no answer is taken from the socket. `withheld`
    bytes of the first frame are not sent with it but one by one, `TRICKLE_S` apart.
    """

    def __init__(
        self,
        port: int,
        frames: Sequence[bytes],
        *,
        connections: int = 4,
        in_flight: int = 1,
        addresses: int = 4,
        reads: bool = True,
        withheld: int = 0,
    ) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="kafkalite-hostile-")  # noqa: SIM115 - as long as the process
        for frame in frames:
            self._file.write(frame)
        self._file.flush()
        order = {
            "port": port,
            "frames": self._file.name,
            "count": len(frames),
            "connections": connections,
            "in_flight": in_flight,
            "addresses": addresses,
            "reads": reads,
            "withheld": withheld,
        }
        super().__init__("tests.kit.hostile.flood", json.dumps(order))

    def begin_run(self, seconds: float, requests: int = 0) -> None:
        """Connects and sends; `requests` of each connection at most, where it is not 0."""
        self.begin({"seconds": seconds, "requests": requests})

    def run(self, seconds: float, requests: int = 0) -> dict[str, Any]:
        """Counts: sent, answered, answer_bytes, closed (by the broker), and the process's own cpu_s."""
        self.begin_run(seconds, requests)
        return self.end(seconds + GRACE_S)

    def close(self) -> None:
        super().close()
        self._file.close()


@dataclass
class _Stream:
    """One connection of the attacker."""

    port: int
    host: str
    unit: memoryview
    unit_count: int
    in_flight: int
    requests: int
    withheld: int = 0
    trickle_at: float = 0.0
    socket: socket.socket = field(init=False)
    position: int = 0
    sent: int = 0
    answered: int = 0
    answer_bytes: int = 0
    skip: int = 0
    head: bytearray = field(default_factory=bytearray)

    def connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), CONNECT_S, (self.host, 0))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.position, self.skip, self.head = 0, 0, bytearray()
        self.sent = self.answered

    @property
    def wants_to_send(self) -> bool:
        if self.withheld and self.position >= len(self.unit) - self.withheld:
            return False
        if self.position:
            return True
        more = not self.requests or self.sent < self.requests
        return more and self.sent - self.answered + self.unit_count <= max(self.in_flight, self.unit_count)

    @property
    def done(self) -> bool:
        return bool(self.requests) and self.answered >= self.requests

    def send(self) -> None:
        while self.wants_to_send:
            try:
                self.position += self.socket.send(self.unit[self.position : len(self.unit) - self.withheld])
            except BlockingIOError:
                return
            if self.position == len(self.unit):
                self.position = 0
                self.sent += self.unit_count

    def trickle(self, now: float) -> None:
        """Sends a byte of those withheld, when it is time."""
        if self.withheld and self.position >= len(self.unit) - self.withheld and now >= self.trickle_at:
            self.trickle_at = now + TRICKLE_S
            with contextlib.suppress(OSError):  # one that the broker has closed is noticed by poll
                self.socket.send(self.unit[self.position : self.position + 1])
                self.withheld, self.position = self.withheld - 1, self.position + 1

    def receive(self, buffer: bytearray) -> None:
        """Counts what has come; ConnectionError when the broker has closed."""
        while True:
            try:
                if self.skip > len(buffer):
                    count = self.socket.recv_into(buffer, len(buffer), socket.MSG_TRUNC)
                else:
                    count = self.socket.recv_into(buffer)
            except BlockingIOError:
                return
            if count == 0:
                raise ConnectionError
            self.answer_bytes += count
            self._count(buffer, count)
            if count < len(buffer):
                return

    def _count(self, buffer: bytearray, count: int) -> None:
        position = 0
        while position < count:
            if self.skip:
                step = min(self.skip, count - position)
                self.skip -= step
                position += step
                self.answered += not self.skip
            else:
                taken = buffer[position : min(count, position + 4 - len(self.head))]
                self.head += taken
                position += len(taken)
                if len(self.head) == 4:
                    self.skip, self.head = int.from_bytes(self.head, "big"), bytearray()


def _streams(order: dict[str, Any], frames: bytes, requests: int) -> Iterator[_Stream]:
    """The connections, not yet connected. Small frames are sent several at a time."""
    in_flight, count = order["in_flight"], order["count"]
    copies = 1 if count > 1 else max(1, min(in_flight // 4, UNIT_SIZE_MAX // len(frames), requests or in_flight))
    unit = memoryview(frames * copies) if copies > 1 else memoryview(frames)
    for number in range(order["connections"]):
        host = f"127.0.0.{FIRST_ADDRESS + number % order['addresses']}"
        yield _Stream(order["port"], host, unit, count * copies, in_flight, requests, order["withheld"])


def _flood(order: dict[str, Any], frames: bytes, seconds: float, requests: int) -> dict[str, Any]:
    """Sends until the time is over or everything is answered."""
    deadline = time.monotonic() + seconds
    buffer = bytearray(PIECE)
    closed = 0
    poll = select.epoll()
    streams: dict[int, _Stream] = {}

    def connect(stream: _Stream) -> None:
        stream.connect()
        streams[stream.socket.fileno()] = stream
        poll.register(stream.socket, select.EPOLLIN | select.EPOLLOUT)

    every = list(_streams(order, frames, requests))
    waiting = deque((0.0, stream) for stream in every)
    while (now := time.monotonic()) < deadline and not (requests and all(stream.done for stream in every)):
        while waiting and waiting[0][0] <= now and closed <= RECONNECTS_MAX and time.monotonic() < deadline:
            _, stream = waiting.popleft()
            try:
                connect(stream)
            except OSError:
                closed += 1
                waiting.append((now + RECONNECT_PAUSE_S, stream))
        if order["withheld"]:
            for stream in streams.values():
                stream.trickle(now)
        for number, events in poll.poll(min(0.05, deadline - now)):
            stream = streams[number]
            try:
                if events & ~select.EPOLLOUT and order["reads"]:
                    stream.receive(buffer)
                elif events & (select.EPOLLHUP | select.EPOLLERR):
                    raise ConnectionError
                stream.send()
            except OSError:
                closed += 1
                del streams[number]
                stream.socket.close()
                waiting.append((now + RECONNECT_PAUSE_S, stream))
                continue
            wanted = (select.EPOLLIN if order["reads"] else 0) | (select.EPOLLOUT if stream.wants_to_send else 0)
            poll.modify(number, wanted)
    for stream in streams.values():
        stream.socket.close()
    poll.close()
    return {
        "sent": sum(stream.sent for stream in every),
        "answered": sum(stream.answered for stream in every),
        "answer_bytes": sum(stream.answer_bytes for stream in every),
        "closed": closed,
        "cpu_s": time.process_time(),
    }


def orders(stdin: IO[str]) -> Any:
    """Yield the parent's orders, line by line, until its input ends."""
    for line in stdin:
        yield json.loads(line)


def tell(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    order = json.loads(sys.argv[1])
    frames = Path(order["frames"]).read_bytes()
    for given in orders(sys.stdin):
        tell(_flood(order, frames, given["seconds"], given["requests"]))


if __name__ == "__main__":
    main()
