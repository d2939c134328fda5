"""Compare the speed of this tree with an older one: `python -m benchmarks.pairs OLD_TREE [--pairs 15] [--only CASE]`.

    pair 1: old, new   pair 2: new, old   …   (both brokers stay up; one works, the other idles)

Each pair gives the ratio new / old of a case's rate, and of the broker's CPU seconds per message. The geometric mean
over all pairs is printed with its 95 % interval (Student's t on the logarithms). A drift of the machine's speed affects
both halves of a pair, so it does not change the ratio. A tree is a checkout with a built `.venv`; `--new` names another
one than this. For a limit closer than 10 %, use `benchmarks.instructions` too.

The case `start` measures a process from its beginning to its first acknowledged message, with its own brokers.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.path import guarantees, latency, startup, throughput
from benchmarks.path.harness import ROOT, Kafkalite, Row, Server, client, cpu_seconds
from tests.kit.harness.load import create_topic
from tests.kit.processes.broker import BrokerProcess

T_95 = {4: 2.776, 6: 2.447, 9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001}
"""Student's t for a two-sided 95 % interval, by degrees of freedom; between two of them the stricter one holds."""

Work = Callable[["TreeServer", int], Row]


def broker_of(tree: Path, directory: Path, settings: dict[str, str] | None = None) -> BrokerProcess:
    """Return a broker that runs the code of a checkout in that checkout's environment."""
    return BrokerProcess(
        directory,
        settings or {},
        command=(str(tree / ".venv" / "bin" / "python"), "-m", "kafkalite", "start"),
        # Python would look into the working directory first, which is the new tree's for both.
        environment={"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
    )


@dataclass
class TreeServer(Kafkalite):
    """The broker of a checkout."""

    tree: Path = ROOT

    def start(self) -> None:
        self.broker = broker_of(self.tree, self.directory, {"num.partitions": "8", **self.settings}).start()
        self.port = self.broker.port


@dataclass(frozen=True)
class PairCase:
    """One case. `work` returns a row with `rate_per_s` and `count`."""

    name: str
    work: Work


def produce(server: Server, turn: int, *, batch: int, count: int) -> Row:
    return throughput.produce(server, f"pairs-{batch}-{turn}", batch, count)


def consume(server: Server, turn: int, *, batch: int, count: int) -> Row:
    """Consume the messages of the produce case in the same turn."""
    target = ["--brokers", f"127.0.0.1:{server.port}", "--topic", f"pairs-{batch}-{turn}", "--count", count]
    return client("rdk_bench", "consume", *target)


def requests(server: Server, turn: int, *, in_flight: int, acks: int, connections: int, count: int) -> Row:
    """Send requests of a single message over bare sockets."""
    return latency.case(in_flight, connections, acks, count).run(server, turn)


def transactions(server: TreeServer, turn: int, *, size: int, count: int) -> Row:
    topic = f"pairs-transactions-{size}-{turn}"
    create_topic(server.port, topic, 1)
    assert server.broker is not None, "started before a case runs"
    work = functools.partial(guarantees.produce_in_transactions, server.broker, topic, count, size)
    return guarantees.timed(server.broker, count, work)


def start(server: TreeServer, turn: int) -> Row:
    """Return starts per second, from an empty directory to the first acknowledged message."""
    folder = server.directory.parent / f"start-{server.name}-{turn}"
    broker = broker_of(server.tree, folder)
    try:
        return {"rate_per_s": 1 / startup.first_message_s(broker), "count": 1}
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)


def cases(scale: float) -> list[PairCase]:
    """Return the cases. With `scale` 1, a half takes one to five seconds on a machine with two cores."""

    def count(full: int) -> int:
        return max(int(full * scale), 2_000)

    return [
        PairCase("produce-50", functools.partial(produce, batch=50, count=count(1_000_000))),
        PairCase("consume-50", functools.partial(consume, batch=50, count=count(1_000_000))),
        PairCase("produce-10000", functools.partial(produce, batch=10_000, count=count(1_000_000))),
        PairCase("one-in-flight", functools.partial(requests, in_flight=1, acks=1, connections=1, count=count(60_000))),
        PairCase("acks-all", functools.partial(requests, in_flight=5, acks=-1, connections=4, count=count(10_000))),
        PairCase("transactions-100", functools.partial(transactions, size=100, count=count(20_000))),
        PairCase("start", start),
    ]


def half(case: PairCase, server: TreeServer, turn: int) -> tuple[float, float]:
    """Return (rate, broker's CPU seconds per unit) of one run."""
    before = cpu_seconds(server.pid)
    row = case.work(server, turn)
    return row["rate_per_s"], (cpu_seconds(server.pid) - before) / row["count"]


def mean_interval(values: list[float]) -> tuple[float, float, float]:
    """Return (mean, lower end, upper end of its 95 % interval) by Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    freedom = len(values) - 1
    known = [t for degrees, t in T_95.items() if degrees <= freedom]
    spread = (known[-1] if known else 12.7) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - spread, mean + spread


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return (geometric mean, lower end, upper end of its 95 % interval) of the pairs' ratios."""
    mean, low, high = mean_interval([math.log(ratio) for ratio in ratios])
    return math.exp(mean), math.exp(low), math.exp(high)


def compare(chosen: list[PairCase], old: TreeServer, new: TreeServer, pair_count: int) -> list[Row]:
    """Run all pairs of all cases, one pair of each case after the other."""
    rates: dict[str, list[float]] = {case.name: [] for case in chosen}
    costs: dict[str, list[float]] = {case.name: [] for case in chosen}
    for turn in range(pair_count):
        order = (old, new) if turn % 2 == 0 else (new, old)
        for case in chosen:
            found = {server.name: half(case, server, turn) for server in order}
            rates[case.name].append(found["new"][0] / found["old"][0])
            if found["old"][1] > 0 and case.name != "start":
                costs[case.name].append(found["new"][1] / found["old"][1])
        print(f"pair {turn + 1} of {pair_count}", file=sys.stderr, flush=True)
    return [summary(case.name, rates[case.name], costs[case.name]) for case in chosen]


def summary(name: str, rates: list[float], costs: list[float]) -> Row:
    mean, low, high = interval(rates)
    row: Row = {"case": name, "rate": mean, "rate_low": low, "rate_high": high, "ratios": rates}
    text = f"{name:18} rate x {mean:.3f} ({low:.3f} to {high:.3f})"
    if costs:
        row["cpu"], row["cpu_low"], row["cpu_high"] = interval(costs)
        text += f"   CPU a message x {row['cpu']:.3f} ({row['cpu_low']:.3f} to {row['cpu_high']:.3f})"
    print(text, flush=True)
    return row


def commit_of(tree: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.pairs", description=__doc__.split("\n\n")[0])
    parser.add_argument("old", type=Path, help="a checkout with a built .venv")
    parser.add_argument("--new", type=Path, default=ROOT, help="another one (default: this)")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages of each case")
    parser.add_argument("--only", help="cases, by commas")
    parser.add_argument("--out", type=Path, help="a JSON file for every ratio")
    arguments = parser.parse_args()
    chosen = cases(arguments.scale)
    if arguments.only:
        wanted = set(arguments.only.split(","))
        if unknown := wanted - {case.name for case in chosen}:
            parser.error(f"unknown case {', '.join(sorted(unknown))}")
        chosen = [case for case in chosen if case.name in wanted]
    with tempfile.TemporaryDirectory(prefix="kafkalite-pairs-") as folder:
        old = TreeServer("old", Path(folder) / "old", tree=arguments.old.resolve())
        new = TreeServer("new", Path(folder) / "new", tree=arguments.new.resolve())
        for server in (old, new):
            server.settings = {"message.max.bytes": "4194304"}
        try:
            old.start()
            new.start()
            rows = compare(chosen, old, new, arguments.pairs)
        finally:
            old.stop()
            new.stop()
    if arguments.out:
        result = {"old": commit_of(old.tree), "new": commit_of(new.tree), "pairs": arguments.pairs, "cases": rows}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
