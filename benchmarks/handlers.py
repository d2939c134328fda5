"""Measure what the decorator @failures.handler costs if no record fails.

`python -m benchmarks.handlers [--pairs 3] [--save]`

    records of one topic ─▶ a loop of the client, which calls the function for each record  ─▶ records per second, plain
    records of one topic ─▶ the same function, decorated, with the same client              ─▶ records per second

Each of the four clients is measured with a function that uses 0, 200 µs and 1 ms of CPU. The function counts in Python
to a number that takes this time when nothing else runs, so work that waits for the GIL is not hidden.

A rate counts from the first record to the last, without joining the group or the start of Python. Both runs of a pair
read the same topic with separate groups, one after the other; the broker is a separate process. The plain loops are
those of the clients' documentation with their defaults, which commit automatically every five seconds. aiokafka awaits
a coroutine function, and the decorated one runs in the program's event loop.

A row also has the process's CPU time per record in µs, which other load affects less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.path import harness
from kafkalite import failures
from kafkalite.client import Client, GroupReader
from tests.kit.processes.broker import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS: Final = ("kafkalite", "confluent-kafka", "kafka-python", "aiokafka")
TOPIC: Final = "orders"
PARTITIONS: Final = 2
COUNTS: Final = {0: 100_000, 200: 15_000, 1000: 4_000}
"""CPU of the function in µs → records."""
VALUE: Final = b"x" * 100
WAIT_S: Final = 170.0

Row = dict[str, float]


class Work:
    """The function: it counts for a number of rounds, and notes the times of the first and the last record."""

    def __init__(self, rounds: int, count: int, end: Callable[[], object]) -> None:
        self._rounds = range(rounds)
        self._left = count
        self._end = end
        self._begin = self._begin_cpu = 0.0
        self.figures: Row = {}

    def __call__(self, _record: object) -> None:
        if not self._begin:
            self._count, self._begin, self._begin_cpu = self._left, time.monotonic(), time.process_time()
        for _ in self._rounds:
            pass
        self._left -= 1
        if not self._left:
            self.figures = {
                "per_s": round(self._count / (time.monotonic() - self._begin), 1),
                "cpu_us": round(1e6 * (time.process_time() - self._begin_cpu) / self._count, 2),
            }
            self._end()


# --- the plain loops --------------------------------------------------------------------------------------------------


def plain(client: str, servers: str, group: str, rounds: int, count: int) -> Row:
    """Run the client's own loop to the last record."""
    over: list[bool] = []
    work = Work(rounds, count, lambda: over.append(True))
    if client == "kafkalite":
        with Client(servers) as own, GroupReader(own, group, TOPIC, reset="earliest") as reader:
            while not over:
                for chunk in reader.poll(0.1):
                    for record in chunk.columns.records():
                        work(record)
    elif client == "confluent-kafka":
        from confluent_kafka import Consumer

        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        while not over:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                work(message)
        consumer.close()
    elif client == "kafka-python":
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
        for message in consumer:
            work(message)
            if over:
                break
        consumer.close()
    else:
        asyncio.run(plain_aiokafka(servers, group, work, over))
    return work.figures


async def plain_aiokafka(servers: str, group: str, work: Work, over: list[bool]) -> None:
    """Run the own loop of a client for asyncio to the last record."""
    from aiokafka import AIOKafkaConsumer

    async def handle(record: object) -> None:
        work(record)

    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    async for message in consumer:
        await handle(message)
        if over:
            break
    await consumer.stop()


# --- the decorated handler --------------------------------------------------------------------------------------------


def decorated(client: str, servers: str, group: str, rounds: int, count: int) -> Row:
    """Run the decorated function to the last record."""
    stop = threading.Event()
    work = Work(rounds, count, stop.set)
    decorate = failures.handler(topics=TOPIC, group=group, retry=["1 s", "10 s"])
    if client != "aiokafka":

        def handle(record: failures.Message) -> None:
            work(record)

        decorate(handle).run(servers, client=client, stop=stop)
    else:

        async def coroutine(record: failures.Message) -> None:
            work(record)

        asyncio.run(decorate(coroutine).serve(servers, client=client, stop=stop))
    return work.figures


# --- pairs ------------------------------------------------------------------------------------------------------------


def rounds_of(microseconds: int) -> int:
    """Return the number of rounds that take this long: the most of several tries."""
    if not microseconds:
        return 0
    tries = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(100_000):
            pass
        tries.append(100_000 * microseconds / (1e6 * (time.perf_counter() - begin)))
    return round(max(tries))


def measured(tree: Path, kind: str, client: str, servers: str, microseconds: int, rounds: int) -> Row:
    """Measure one run in a separate process, with the code of a checkout."""
    group = f"{kind}-{time.monotonic_ns()}"
    words = [sys.executable, str(Path(__file__).resolve()), "--run", kind, client, servers, group]
    words += [str(rounds), str(COUNTS[microseconds])]
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{harness.ROOT}", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, timeout=WAIT_S, check=True)
    return {f"{kind}_{name}": value for name, value in json.loads(done.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.handlers", description=(__doc__ or "").split("`", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only these")
    parser.add_argument("--cpu", type=int, action="append", choices=COUNTS, help="only these, in microseconds")
    parser.add_argument("--tree", type=Path, default=harness.ROOT, help="a checkout with built modules (default: this)")
    parser.add_argument("--save", action="store_true", help="add the rows to results/handlers.json")
    parser.add_argument("--run", nargs=6, metavar="WORD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        kind, client, servers, group, rounds, count = arguments.run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = {"plain": plain, "decorated": decorated}[kind](client, servers, group, int(rounds), int(count))
        print(json.dumps(found))
        return
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
        for microseconds in arguments.cpu or COUNTS:
            with Client(broker.bootstrap) as own:
                if TOPIC in own.topics():
                    own.admin.delete_topic(TOPIC)
                own.admin.create_topic(TOPIC, PARTITIONS)
                for partition in range(PARTITIONS):
                    own.produce(TOPIC, partition, [VALUE] * (COUNTS[microseconds] // PARTITIONS))
            rounds = rounds_of(microseconds)
            for client in arguments.client or CLIENTS:
                for number in range(arguments.pairs):
                    kinds = ("plain", "decorated") if number % 2 == 0 else ("decorated", "plain")
                    row: Row = {}
                    for kind in kinds:
                        row |= measured(arguments.tree, kind, client, broker.bootstrap, microseconds, rounds)
                    row |= {"ratio": round(row["decorated_per_s"] / row["plain_per_s"], 3), "load": os.getloadavg()[0]}
                    rows.setdefault(f"{client}, {microseconds} us", []).append(row)
                    print(client, microseconds, json.dumps(row), flush=True)
    for name, runs in rows.items():
        print(f"{name}: {statistics.median(row['ratio'] for row in runs):.2f} (median of {len(runs)})")
    if arguments.save:
        path = harness.RESULTS / "handlers.json"
        before = json.loads(path.read_text())["rows"] if path.exists() else {}
        every = {name: [*before.get(name, []), *rows.get(name, [])] for name in {**before, **rows}}
        harness.write_result("handlers", {"counts": COUNTS, "rows": every})


if __name__ == "__main__":
    main()
