"""Measure whether retries delay other records, and how late retries are.

`python -m benchmarks.retries [--pairs 5] [--tree OLD] [--tree .]`

    10,000 records that fail once, then good ones ─▶ a member, RetryTopics(["10 s"]), a handler that only notes the time
    pair 1: calm, storm of each tree   pair 2: the trees the other way round   …   (the broker is this tree's)

A `calm` run has only the good records. A `storm` run is compared with the calm run of its pair:

    retrying      good records per second from the first retry to the last, as a fraction of the calm rate
    meanwhile     the same, from the first failure to the last retry
    topic         the same, with the failing records, which belong to the topic too
    late          how much later than ten seconds retries were
    net           the same, less the CPU time of the retries handled while the record was due: all are due at once, so
                  some must be last

Without `--rate` the member works as fast as it can, so each instruction of a retry is missing elsewhere. With `--rate
N`, N good records per second are written while the others are retried.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client import Client
from kafkalite.failures import Message, Policy, RetryTopics, run
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.failures import Runner

DELAY_S: Final = 10.0
WAIT_S: Final = 300.0
BAD, GOOD = b"bad", b"good"
CHUNK: Final = 50_000
BEAT_S: Final = 0.01
"""With a rate, so often records are written."""

Row = dict[str, float]


# --- the member, in a process of its own ------------------------------------------------------------------------------


class Handler:
    """Notes when it is called. A record with the key `bad` fails the first time."""

    def __init__(self, topic: str, good: int, bad: int, stop: threading.Event) -> None:
        self._topic = topic
        self._good, self._bad = good, bad
        self._stop = stop
        self.main: list[float] = []
        self.retried: list[float] = []
        self.late: list[float] = []
        self.cpu: list[float] = []
        self.failed_at: dict[bytes | None, float] = {}

    def __call__(self, record: Message) -> None:
        now = time.monotonic()
        if record.topic != self._topic:
            self.retried.append(now)
            self.late.append(now - self.failed_at[record.value] - DELAY_S)
            self.cpu.append(time.process_time())
        elif record.key == BAD:
            self.failed_at[record.value] = now
            raise RuntimeError("not now")
        else:
            self.main.append(now)
        if len(self.main) >= self._good and len(self.retried) >= self._bad:
            self._stop.set()

    def rate(self, begin: float, end: float) -> float:
        """Return the good records per second between two times; 0 if they ended before."""
        end = min(end, self.main[-1])
        return sum(begin <= at < end for at in self.main) / (end - begin) if begin < end else 0.0

    def each_s(self) -> float:
        """Return the member's CPU seconds per record during the retries."""
        begin, end = self.retried[0], self.retried[-1]
        return (self.cpu[-1] - self.cpu[0]) / (len(self.retried) + sum(begin <= at < end for at in self.main))

    def net(self) -> list[float]:
        """Return how late each retry was, less the handling of the retries before it."""
        each_s = self.each_s()
        before = [
            place - bisect.bisect_left(self.retried, at - late)
            for place, (at, late) in enumerate(zip(self.retried, self.late, strict=True))
        ]
        return [max(late - count * each_s, 0.0) for late, count in zip(self.late, before, strict=True)]

    def figures(self) -> Row:
        found = {"rate": self.rate(self.main[0], self.main[-1]), "cpu_s": time.process_time()}
        if self._bad:
            late = sorted(self.late)
            first, last = min(self.failed_at.values()), self.retried[-1]
            net = sorted(self.net())
            fails = sum(at < self.main[-1] for at in self.failed_at.values())
            span = min(last, self.main[-1]) - first
            found |= {
                "retrying_rate": self.rate(self.retried[0], last),
                "meanwhile_rate": self.rate(first, last),
                "topic_rate": self.rate(first, last) + (fails / span if span > 0 else 0.0),
                "retrying_s": last - self.retried[0],
                "failing_s": max(self.failed_at.values()) - first,
                "covered": min(1.0, (self.main[-1] - first) / (last - first)),
                "early": float(late[0] < 0),
                "late_p50_s": late[len(late) // 2],
                "late_p99_s": late[int(len(late) * 0.99)],
                "net_p50_s": net[len(net) // 2],
                "net_p99_s": net[int(len(net) * 0.99)],
                "cpu_each_us": 1e6 * self.each_s(),
            }
        return found


def member(bootstrap: str, topic: str, good: int, bad: int) -> None:
    """Handle a whole topic, and print the figures."""
    stop = threading.Event()
    handler = Handler(topic, good, bad, stop)
    policy = Policy(group=topic, topics=[topic], strategy=RetryTopics([f"{DELAY_S:g} s"], jitter=0.0))
    runners: list[Runner] = []
    run(policy, handler, bootstrap, stop=stop, on_start=runners.append)
    print(json.dumps(handler.figures()))


# --- pairs ------------------------------------------------------------------------------------------------------------


def storm(bootstrap: str, tree: Path, topic: str, good: int, bad: int, rate: int) -> Row:
    """Run a tree's member over a new topic."""
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, 1)
        client.produce(topic, 0, [Record(-1, -1, BAD, b"%d" % number) for number in range(bad)] or [b""][:0])
        if not rate:
            for first in range(0, good, CHUNK):
                client.produce(topic, 0, [Record(-1, -1, GOOD, b"%d" % n) for n in range(first, first + CHUNK)])
        words = [str(tree / ".venv" / "bin" / "python"), str(Path(__file__).resolve()), "--member", bootstrap, topic]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        process = subprocess.Popen([*words, str(good), str(bad)], env=environment, stdout=subprocess.PIPE)
        try:
            if rate:
                pour(client, topic, good, rate)
            said, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
            process.wait()
        client.admin.delete_topic(topic)
    found: Row = json.loads(said)
    return found


def pour(client: Client, topic: str, good: int, rate: int) -> None:
    """Write good records at this rate per second."""
    begin, written = time.monotonic(), 0
    while written < good:
        due = min(int((time.monotonic() - begin) * rate), good)
        if due > written:
            client.produce(topic, 0, [Record(-1, -1, GOOD, b"%d" % number) for number in range(written, due)])
            written = due
        time.sleep(BEAT_S)


def pair(bootstrap: str, tree: Path, number: int, arguments: argparse.Namespace) -> Row:
    """Run calm, then storm; return the figures of both."""
    name = f"retries-{tree.resolve().name}-{number}"
    calm = {"rate": float(arguments.rate)}
    if not arguments.rate:
        calm = storm(bootstrap, tree, f"{name}-calm", arguments.good, 0, 0)
    found = storm(bootstrap, tree, f"{name}-storm", arguments.good, arguments.bad, arguments.rate)
    found["calm_rate"] = calm["rate"]
    for span in ("retrying", "meanwhile", "topic"):
        found[f"{span}_share"] = found[f"{span}_rate"] / calm["rate"]
    found["load"] = os.getloadavg()[0]
    return found


def compare(arguments: argparse.Namespace) -> None:
    from tests.kit.processes.broker import BrokerProcess  # not there for a member of another tree

    rows: dict[Path, list[Row]] = {tree: [] for tree in arguments.tree}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
        for number in range(arguments.pairs):
            for tree in arguments.tree if number % 2 == 0 else reversed(arguments.tree):
                found = pair(broker.bootstrap, tree, number, arguments)
                rows[tree].append(found)
                print(tree, json.dumps({name: round(value, 4) for name, value in found.items()}), flush=True)
    for tree, all_of_it in rows.items():
        print(f"{tree}: medians of {len(all_of_it)}:", json.dumps(medians(all_of_it)))


def medians(rows: list[Row]) -> dict[str, Any]:
    return {name: round(statistics.median(row[name] for row in rows), 4) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.retries", description=(__doc__ or "").split("`")[0])
    parser.add_argument("--member", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--tree", type=Path, action="append", help="checkouts with a built .venv (default: this one)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--good", type=int, default=600_000)
    parser.add_argument("--bad", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=0, help="good records a second; 0: all are there before")
    arguments = parser.parse_args()
    if arguments.member:
        bootstrap, topic, good, bad = arguments.member
        member(bootstrap, topic, int(good), int(bad))
        return
    arguments.tree = [tree.resolve() for tree in arguments.tree or [Path(__file__).parents[1]]]
    compare(arguments)


if __name__ == "__main__":
    main()
