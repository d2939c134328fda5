"""The honest client: a process with one request in flight, in turn Produce with acks=all, Metadata and Fetch.

    HonestClient(port).run(seconds)   what came of each kind: count, p50_us, p99_us, max_us; refused, unanswered

It connects from 127.0.0.1 and writes to the topic `honest`, which it makes. A request that is not answered when the
time is over is waited for (`grace_s`), and counts as unanswered after that, at the latency that it has had by then.
"""

from __future__ import annotations

import struct
import sys
import time
from typing import Any

from tests.kit.harness import wire
from tests.kit.hostile.flood import GRACE_S, Program, orders, tell

TOPIC = "honest"
PRODUCE, METADATA, FETCH = KINDS = ("produce", "metadata", "fetch")


class HonestClient(Program):
    """The process; `run` may be called again and again."""

    def __init__(self, port: int) -> None:
        super().__init__("tests.kit.hostile.honest", str(port))

    def begin_run(self, seconds: float, *, grace_s: float = 0.0, rounds_min: int = 0) -> None:
        """Send requests for `seconds`, and longer until `rounds_min` rounds are complete."""
        self.begin({"seconds": seconds, "grace_s": grace_s, "rounds_min": rounds_min})

    def run(self, seconds: float, *, grace_s: float = 0.0, rounds_min: int = 0) -> dict[str, Any]:
        self.begin_run(seconds, grace_s=grace_s, rounds_min=rounds_min)
        return self.end(seconds + grace_s + GRACE_S)


class _Client:
    """The connection and its three requests, built once."""

    def __init__(self, port: int) -> None:
        self.port = port
        batch = wire.batch_of([wire.Record(b"key", b"v" * 100)])
        bodies = [
            (wire.PRODUCE, 7, wire.produce_body(TOPIC, [(0, batch)], version=7, acks=-1)),
            (wire.METADATA, 4, wire.array([wire.string(TOPIC)]) + b"\0"),
            (wire.FETCH, 11, wire.fetch_body(TOPIC, [(0, 0)], version=11, max_wait_ms=0, partition_max_bytes=1000)),
        ]
        self.frames = [wire.frame(wire.header(key, version, 1) + body) for key, version, body in bodies]
        self.connection = wire.Connection(port)
        self.connection.create_topic(TOPIC, 1)

    def ask(self, number: int, timeout_s: float) -> str:
        """Return what is wrong with the response; raise OSError without one."""
        self.connection.socket.settimeout(max(timeout_s, 0.001))
        self.connection.send_bytes(self.frames[number])
        _, answer = self.connection.receive()
        if KINDS[number] == PRODUCE:
            error = wire.parse_produce(answer, 7)[0].error
        elif KINDS[number] == FETCH:
            error = wire.parse_fetch(answer, 11)[0].error
        else:
            error = struct.unpack_from(">h", answer, answer.index(wire.string(TOPIC)) - 2)[0]
        return f"{KINDS[number]}: error {error}" if error else ""

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = wire.Connection(self.port)

    def run(self, seconds: float, grace_s: float, rounds_min: int) -> dict[str, Any]:
        began = time.monotonic()
        deadline, last = began + seconds, began + seconds + grace_s
        latencies: dict[str, list[float]] = {kind: [] for kind in KINDS}
        refused: list[str] = []
        unanswered = ""
        rounds = 0
        while not unanswered and ((now := time.monotonic()) < deadline or (rounds < rounds_min and now < last)):
            for number, kind in enumerate(KINDS):
                sent = time.perf_counter()
                try:
                    wrong = self.ask(number, last - time.monotonic())
                except (OSError, wire.Closed) as error:
                    unanswered = f"{kind}: {error!r}"
                latencies[kind].append((time.perf_counter() - sent) * 1e6)
                if unanswered:
                    break
                if wrong:
                    refused.append(wrong)
                if time.monotonic() > deadline and rounds >= rounds_min:
                    break
            rounds += 1
        took = time.monotonic() - began
        if unanswered:
            try:
                self.reconnect()
            except OSError as error:
                unanswered += f"; {error!r}"
        every = sorted(latency for found in latencies.values() for latency in found)
        return {
            "kinds": {kind: _figures(sorted(found)) for kind, found in latencies.items()},
            **_figures(every),
            "rounds": rounds,
            "seconds": took,
            "rate_per_s": (len(every) - bool(unanswered)) / took,
            "refused": refused[:10],
            "unanswered": unanswered,
            "cpu_s": time.process_time(),
        }


def _figures(latencies: list[float]) -> dict[str, float]:
    """Count, quantiles and the largest."""
    if not latencies:
        return {"count": 0}
    quantile = {name: latencies[min(len(latencies) - 1, int(len(latencies) * share))] for name, share in QUANTILES}
    return {"count": len(latencies), **quantile, "max_us": latencies[-1]}


QUANTILES = (("p50_us", 0.5), ("p99_us", 0.99))


def main() -> None:
    client = _Client(int(sys.argv[1]))
    for given in orders(sys.stdin):
        tell(client.run(given["seconds"], given["grace_s"], given["rounds_min"]))


if __name__ == "__main__":
    main()
