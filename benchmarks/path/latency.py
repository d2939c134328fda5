"""Measure how fast requests of one 200-byte message are answered, with one and five in flight, next to the C yardstick.

If both ends sleep between messages, the rate is the machine's wake-up time, which jumps when the scheduler puts both on
one core. So each case runs on one core, on two, and without pinning. Target: ≥ 0.9 of the yardstick's rate, p99 ≤ 1.5
times its p99. The acks=all case shows the cost of an fdatasync per response.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.path.harness import Case, Kafkalite, NullBroker, Row, Server, client, pin, run_suite

PLACES = {"same-core": ({0}, {0}), "two-cores": ({0}, {1}), "free": (None, None)}
"""Name → cores of the server and of the client. With one request in flight the scheduler's choice is the result."""


def case(in_flight: int, connections: int, acks: int, count: int, place: str = "free") -> Case:
    server_cores, client_cores = PLACES[place]

    def prepare(server: Server, _: int) -> None:
        pin(server.pid, server_cores or set(range(os.cpu_count() or 1)))

    def run(server: Server, repeat: int) -> Row:
        load = ["--count", count, "--in-flight", in_flight, "--connections", connections, "--acks", acks]
        target = ["--port", server.port, "--topic", f"{place}-{in_flight}-{connections}-{acks + 1}-{repeat}"]
        return client("raw_bench", "produce", *target, *load, "--partitions", connections, cores=client_cores)

    name = {1: "acks-1", -1: "acks-all"}[acks]
    return Case(f"{name}-in-flight-{in_flight}-connections-{connections}-{place}", run, prepare)


def servers(folder: Path) -> Sequence[Server]:
    return [
        NullBroker("null-append", folder / "append"),
        Kafkalite("kafkalite", folder / "kafkalite"),
        NullBroker("null-ack", folder / "ack", mode="ack"),
    ]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (2_000, 1) if small else (100_000, 5)
    cases = [case(1, 1, 1, count, place) for place in PLACES]
    cases += [case(5, 1, 1, count, place) for place in PLACES]
    cases += [case(5, 4, 1, count), case(1, 1, -1, max(count // 20, 500)), case(5, 4, -1, max(count // 10, 500))]
    return [run_suite("latency", cases, servers, repeat_count)]
