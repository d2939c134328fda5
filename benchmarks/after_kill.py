"""Measure how fast a group member handles records after it was killed.

`python -m benchmarks.after_kill [--pairs 5] [--tree OLD] [--tree .] [--save]`
`python -m benchmarks.after_kill --orders [--tree OLD] [--tree .] [--save]`

Each of the four clients is measured in pairs of runs:

    5,000 records ─▶ a member to the end                                          ─▶ records per second, plain
    5,000 records ─▶ a member, killed in its 301st call ─▶ the same member again  ─▶ records per second, after the kill

A rate counts from the first record that a process handles to its last. Both runs have a separate topic and group on one
broker of this tree. The trees alternate. The handler only notes the time, and takes `--pause-ms` longer if given. The
shorter it is, the more the ledger's notes weigh.

With `--orders`, a member of each client and each strategy handles 1,000 records. It is killed in three lives, and
restarted at once each time. A row has the seconds from the first start to the last commit, the handler's calls, the
records that were never handled, the dead letters, and the rate of the fourth life. `--client` selects one client. So
four processes can share a machine, because they mostly wait for sessions to end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.path import harness
from kafkalite.client import Client
from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from tests.kit.harness.failing_groups import records
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.killed_member import CLIENTS, STRATEGIES

COUNT: Final = 5000
KILL_AT: Final = 301
ORDERS: Final = 1000
ORDERS_KILL_AT: Final = (150, 220, 90)
"""The call of the handler, in each of three lives, at which the member is killed."""
WAIT_S: Final = 600.0
MEMBER: Final = harness.ROOT / "tests" / "kit" / "processes" / "killed_member.py"


def start(
    tree: Path, bootstrap: str, topic: str, client: str, log: Path, *more: str, strategy: str = "topics"
) -> subprocess.Popen[bytes]:
    """Start a member that runs the code of a checkout."""
    words = [str(tree / ".venv" / "bin" / "python"), str(MEMBER), bootstrap, topic, client, strategy, str(log), *more]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    with log.with_suffix(".out").open("ab") as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=out)


def rate(log: Path) -> tuple[float, int]:
    """Return records per second from the first call to the last, and the number of calls."""
    times = [float(line.split()[2]) for line in log.read_text().splitlines()]
    return (len(times) - 1) / (times[-1] - times[0]), len(times)


def until_done(client: Client, topic: str, member: subprocess.Popen[bytes], count: int = COUNT) -> None:
    place = TopicPartition(topic, 0)
    deadline = time.monotonic() + WAIT_S
    while True:
        found = client.groups.committed(topic).get(place)
        if found is not None and found.offset >= count:
            return
        if member.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the member of {topic} has exited with status {member.poll()} or takes too long")
        time.sleep(0.05)


def life(tree: Path, bootstrap: str, directory: Path, name: str, *, kill: bool, pause_ms: float) -> dict[str, float]:
    """Let a member handle a whole topic, and measure its rate. With `kill`, a first member is killed, and the second
    measured."""
    client_name = name.split("_", maxsplit=1)[0]
    log = directory / name
    more = ("--pause-ms", str(pause_ms))
    with Client(bootstrap) as client:
        client.admin.create_topic(name, 1)
        client.produce(name, 0, [b"%d" % number for number in range(COUNT)])
        if kill:
            member = start(tree, bootstrap, name, client_name, log, *more, "--kill-at", str(KILL_AT))
            member.wait(WAIT_S)
            log = log.with_suffix(".second")
        member = start(tree, bootstrap, name, client_name, log, *more)
        try:
            until_done(client, name, member)
        finally:
            member.terminate()
            member.wait(60)
    found, calls = rate(log)
    return {"rate": found, "calls": float(calls)}


def pair(tree: Path, bootstrap: str, directory: Path, client: str, number: int, pause_ms: float) -> dict[str, float]:
    name = f"{client}_{tree.name}_{number}_{pause_ms:g}"
    plain = life(tree, bootstrap, directory, f"{name}_plain", kill=False, pause_ms=pause_ms)
    after = life(tree, bootstrap, directory, f"{name}_killed", kill=True, pause_ms=pause_ms)
    return {
        "plain_per_s": plain["rate"],
        "after_kill_per_s": after["rate"],
        "calls": after["calls"],
        "share": after["rate"] / plain["rate"],
        "load": os.getloadavg()[0],
    }


def three_kills(tree: Path, bootstrap: str, directory: Path, client_name: str, strategy: str) -> dict[str, float]:
    """Kill a member in three lives over 1,000 records, and measure the life that handles the rest."""
    name = f"orders_{client_name}_{tree.name}_{strategy}"
    log = directory / name
    with Client(bootstrap) as client:
        client.admin.create_topic(name, 1)
        client.produce(name, 0, [b"%d" % number for number in range(ORDERS)])
        begin = time.monotonic()
        for life_number, at in enumerate(ORDERS_KILL_AT):
            life_log = log.with_suffix(f".{life_number}")
            member = start(tree, bootstrap, name, client_name, life_log, "--kill-at", str(at), strategy=strategy)
            member.wait(WAIT_S)
        member = start(tree, bootstrap, name, client_name, log, strategy=strategy)
        try:
            until_done(client, name, member, ORDERS)
            seconds = time.monotonic() - begin
        finally:
            member.terminate()
            member.wait(60)
        dead = 0
        with contextlib.suppress(KafkaError):  # the topic is created for its first letter
            dead = len(records(client, f"dlq.{name}.{name}"))
    logs = [*(log.with_suffix(f".{number}") for number in range(len(ORDERS_KILL_AT))), log]
    calls = [int(line.split()[1]) for one in logs for line in one.read_text().splitlines()]
    return {
        "seconds": seconds,
        "calls": float(len(calls)),
        "lost": float(ORDERS - len(set(calls))),
        "dead_letters": float(dead),
        "after_kill_per_s": rate(log)[0],
        "load": os.getloadavg()[0],
    }


def orders(trees: list[Path], bootstrap: str, directory: Path, clients: list[str]) -> dict[str, dict[str, object]]:
    """Return the table of `--orders`: by tree, then by client and strategy."""
    rows: dict[str, dict[str, object]] = {tree.name: {} for tree in trees}
    for client in clients:
        for strategy in STRATEGIES:
            for tree in trees:
                try:
                    found = three_kills(tree, bootstrap, directory, client, strategy)
                except SystemExit as error:
                    print(tree.name, client, strategy, error, flush=True)
                    continue
                rows[tree.name][f"{client}, {strategy}"] = found
                print(tree.name, client, strategy, json.dumps({k: round(v, 3) for k, v in found.items()}), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.after_kill", description=(__doc__ or "").split("`")[0])
    parser.add_argument("--tree", type=Path, action="append", help="checkouts with a built .venv (default: this one)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only these")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="what the handler takes")
    parser.add_argument("--orders", action="store_true", help="1,000 records and three kills, by each strategy")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write the rows to results/after-kill.json or, with --orders, to results/after-kill-orders.json",
    )
    arguments = parser.parse_args()
    trees = [tree.resolve() for tree in arguments.tree or [harness.ROOT]]
    if arguments.orders:
        with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
            table = orders(trees, broker.bootstrap, Path(directory), arguments.client or list(CLIENTS))
        if arguments.save:
            harness.write_result("after-kill-orders", {"count": ORDERS, "kills": ORDERS_KILL_AT, "rows": table})
        return
    rows: dict[str, dict[str, list[dict[str, float]]]] = {tree.name: {} for tree in trees}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "broker") as broker:
        for number in range(arguments.pairs):
            for client in arguments.client or CLIENTS:
                for tree in trees if number % 2 == 0 else reversed(trees):
                    found = pair(tree, broker.bootstrap, Path(directory), client, number, arguments.pause_ms)
                    rows[tree.name].setdefault(client, []).append(found)
                    print(tree.name, client, json.dumps({k: round(v, 3) for k, v in found.items()}), flush=True)
    for name, clients in rows.items():
        for client, runs in clients.items():
            share = statistics.median(row["share"] for row in runs)
            print(f"{name} {client}: {share:.2f} of the plain rate (median of {len(runs)})")
    if arguments.save:
        harness.write_result("after-kill", {"pause_ms": arguments.pause_ms, "count": COUNT, "rows": rows})


if __name__ == "__main__":
    main()
