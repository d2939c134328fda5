"""How fast is one 200-byte message a request answered, with one and with five in flight, beside the C yardstick?

Compare only within a run: with both ends asleep between messages the rate is the machine's wake-up time. Target: ≥ 0.9
of the yardstick's rate, p99 ≤ 1.5 times its p99. The acks=all case says what an fdatasync for each answer costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.path.harness import Case, Kafkalite, NullBroker, Row, Server, client, run_suite


def case(in_flight: int, connections: int, acks: int, count: int) -> Case:
    def run(server: Server, repeat: int) -> Row:
        load = ["--count", count, "--in-flight", in_flight, "--connections", connections, "--acks", acks]
        topic = f"lat{in_flight}-{connections}-{acks + 1}-{repeat}"
        return client(
            "raw_bench", "produce", "--port", server.port, "--topic", topic, *load, "--partitions", connections
        )

    name = {1: "acks-1", -1: "acks-all"}[acks]
    return Case(f"{name}-in-flight-{in_flight}-connections-{connections}", run)


def servers(folder: Path) -> Sequence[Server]:
    return [
        NullBroker("null-append", folder / "append"),
        Kafkalite("kafkalite", folder / "kafkalite"),
        NullBroker("null-ack", folder / "ack", mode="ack"),
    ]


def main(*, small: bool) -> list[Path]:
    count, repeat_count = (2_000, 1) if small else (100_000, 5)
    cases = [case(1, 1, 1, count), case(5, 1, 1, count), case(5, 4, 1, count)]
    cases += [case(1, 1, -1, max(count // 20, 500)), case(5, 4, -1, max(count // 10, 500))]
    return [run_suite("latency", cases, servers, repeat_count)]
