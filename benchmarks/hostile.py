"""Measure what a hostile client does to an honest one: `python -m benchmarks.hostile [--tree PATH] [--only API]`.

    each API's broker ── each attack ── 4 s: attackers (127.0.0.2 and up) and the honest client (127.0.0.1)
                                     ── the attackers' connections close: when does the broker's work end?
                                     ── 2 s, the baseline: the honest client next to processes that burn as much CPU
                      ── at its end: SIGTERM during an attack

Every list in every API is attacked in several ways:

    large     90,000 names that exist, that do not, or that are all the same, over four connections
    medium    as many names as a network thread serves in 2 ms, in 1,000 pipelined requests. The table of APIs gives
              this number, or else the broker's CPU clock
    special   a null list and an empty list

The other families of attacks are in tests/kit/hostile/families.py. Rows are written to a file, one JSON object per
line; rows that are already in the file are skipped. A broker that uses more than `--guard` MiB is killed, and its row
says so.

Goals: throughput at least 0.5 of the baseline; p99 at most 3 times the baseline; RssAnon at most 256 MiB above the
memory limit; work ends a second after its connection; SIGTERM within 2 s; no turn of a network thread above 20 ms of
CPU, if the broker counts them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.pairs import broker_of
from benchmarks.path.harness import ROOT, Row, write_result
from tests.kit.hostile.burner import Burners
from tests.kit.hostile.families import FAMILIES, Family, refused_newcomer
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.honest import HonestClient
from tests.kit.hostile.requests import (
    EMPTY,
    EXISTING,
    NULL,
    REPEATED,
    UNKNOWN,
    ListAttack,
    Populace,
    attacks_named,
    inline_items,
    whole_requests,
)
from tests.kit.hostile.world import (
    AUTHORISER,
    DENYING,
    Watch,
    World,
    cpu_seconds,
    longest_turn_s,
    rss_anon,
    turns,
    work_ends_after,
)
from tests.kit.processes.broker import BrokerProcess, free_port

MIB = 1 << 20
ITEMS = 90_000
PIPELINED = 1000
LONG_REQUEST_S = 0.002
CALIBRATION = 500
WORK_END_MAX_S = 5.0
STOP_MAX_S = 20.0
SETTLE_S = 0.5
BASELINE_ROUNDS = 20
BASELINE_MAX_S = 60.0
"""The baseline goes through some rounds at least, however busy the machine is."""
PIPELINE = "pipelined"
CASES = (EXISTING, UNKNOWN, REPEATED, PIPELINE, NULL, EMPTY)

THROUGHPUT_MIN, P99_MAX, TURN_MAX_MS, END_MAX_S, STOP_GOAL_S = 0.5, 3.0, 20.0, 1.0, 2.0
CEILING_MAX = 512 * MIB
MEMORY_ABOVE = 256 * MIB


def ceiling() -> int:
    """Return the default of broker.memory.max: the smaller of 512 MiB and a quarter of the machine's memory."""
    return min(CEILING_MAX, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


@dataclass
class Side:
    """One broker with topics and groups, its honest client, and its idle cost."""

    world: World
    options: argparse.Namespace
    settings: Mapping[str, str]
    metrics_port: int = 0
    broker: BrokerProcess = field(init=False)
    honest: HonestClient = field(init=False)
    cpu_per_request: float = 0.0
    rate_alone: float = 0.0

    def start(self) -> None:
        self.metrics_port = free_port()
        metrics = {"metrics.listeners": f"http://127.0.0.1:{self.metrics_port}"}
        self.broker = self.world.broker({**metrics, **self.settings})
        self.honest = HonestClient(self.broker.port)
        self.honest.run(SETTLE_S)
        before = cpu_seconds(self.broker.pid)
        alone = self.honest.run(SETTLE_S)
        self.cpu_per_request = (cpu_seconds(self.broker.pid) - before) / max(1, alone["count"])
        self.rate_alone = alone["rate_per_s"]

    def close(self) -> None:
        self.honest.close()
        self.world.forget(self.broker)

    def fresh(self) -> None:
        """Replace the broker by a new one in the initial state."""
        self.close()
        self.start()

    def measure(self, flood: Flood, seconds: float, requests: int = 0) -> Row:
        """Measure the honest client during an attack, the attack's cost, and the baseline at this cost."""
        began_memory, began_turns = rss_anon(self.broker.pid), turns(self.metrics_port)
        with flood, Watch(self.broker.pid, self.options.guard * MIB) as watch:
            flood.begin_run(seconds, requests)
            during = self.honest.run(seconds)
            took = watch.cpu_s
            with contextlib.suppress(OSError):
                attacked = flood.end(seconds + 30)
        row: Row = {"peak_mib": watch.peak / MIB, "began_mib": began_memory / MIB, "killed": watch.killed}
        row["broker_cpu_s"] = took
        row.update({key: attacked[key] for key in ("sent", "answered", "closed", "answer_bytes")})
        for key in ("rate_per_s", "p50_us", "p99_us", "max_us", "count", "unanswered", "refused"):
            row[key] = during.get(key)
        row["kinds"] = during["kinds"]
        burnt = max(0.0, took - self.cpu_per_request * during["count"]) + attacked["cpu_s"]
        row["load"] = burnt / during["seconds"]
        row["end_s"] = None if watch.killed else work_ends_after(self.broker.pid, WORK_END_MAX_S)
        if not watch.killed:
            row["after_mib"] = rss_anon(self.broker.pid) / MIB
            longest = longest_turn_s(began_turns, turns(self.metrics_port))
            row["turn_ms"] = None if longest is None else longest * 1000
        if watch.killed or row["end_s"] is None:
            self.fresh()
        with Burners(min(row["load"], os.cpu_count() or 1)):
            beside = self.honest.run(seconds / 2, grace_s=BASELINE_MAX_S, rounds_min=BASELINE_ROUNDS)
        if beside["unanswered"]:
            raise RuntimeError(f"the idle broker does not respond: {beside['unanswered']}")
        row["baseline"] = {key: beside[key] for key in ("rate_per_s", "p50_us", "p99_us", "count")}
        row["throughput"] = row["rate_per_s"] / beside["rate_per_s"]
        row["p99"] = row["p99_us"] / beside["p99_us"]
        return row

    def stop_during(self, flood: Flood) -> float | None:
        """Return the seconds that SIGTERM takes during an attack, or None if it takes longer than STOP_MAX_S."""
        with flood:
            flood.begin_run(STOP_MAX_S + SETTLE_S)
            time.sleep(SETTLE_S)
            try:
                return self.broker.stop(STOP_MAX_S)
            except AssertionError:
                return None

    def inline_items(self, attack: ListAttack) -> int:
        """Return how many names a network thread serves in one request, by this tree's table or by an item's cost."""
        if self.options.tree.resolve() == ROOT:
            return inline_items(attack, self.world.populace)
        frame = attack.frame(EXISTING, CALIBRATION, self.world.populace)
        before, requests = cpu_seconds(self.broker.pid), 4
        with Flood(self.broker.port, [frame], connections=1) as flood:
            flood.run(2, requests)
        took = cpu_seconds(self.broker.pid) - before
        return max(1, min(ITEMS, int(0.9 * LONG_REQUEST_S / (took / requests / CALIBRATION))))


def attacked(side: Side, attack: ListAttack, case: str) -> Row:
    """Measure one attack on one list; return its row."""
    populace, port = side.world.populace, side.broker.port
    in_flight, count, names = 1, side.options.items, case
    if case == PIPELINE:
        in_flight, count, names = PIPELINED, side.inline_items(attack), EXISTING
    elif case in {NULL, EMPTY}:
        in_flight, count = PIPELINED, 0
    flood = Flood(port, [attack.frame(names, count, populace)], in_flight=in_flight)
    return {"items": count, **side.measure(flood, side.options.seconds)}


def cases_of(attack: ListAttack, options: argparse.Namespace) -> Iterator[str]:
    for case in CASES:
        if case in options.cases and (case != NULL or attack.nullable):
            yield case


def settings_of(attack: ListAttack, options: argparse.Namespace) -> Mapping[str, str]:
    if options.denied:
        return DENYING
    return AUTHORISER if attack.needs_acls else {}


def run_lists(world: World, options: argparse.Namespace, done: set[tuple[str, str]]) -> Iterator[Row]:
    """Attack every list, API by API, each with a separate broker."""
    attacks = attacks_named(options.only)
    for key in dict.fromkeys(attack.key for attack in attacks):
        mine = [attack for attack in attacks if attack.key == key]
        todo = [
            (attack, case) for attack in mine for case in cases_of(attack, options) if (attack.id, case) not in done
        ]
        if not todo:
            continue
        side = Side(world, options, settings_of(mine[0], options))
        side.start()
        try:
            for attack, case in todo:
                yield {"attack": attack.id, "case": case, **attacked(side, attack, case)}
                if attack.mutates or not side.broker.alive:
                    side.fresh()
            if options.sigterm and (mine[0].id, "SIGTERM") not in done:
                frame = mine[0].frame(EXISTING, options.items, world.populace)
                stop_s = side.stop_during(Flood(side.broker.port, [frame]))
                yield {"attack": mine[0].id, "case": "SIGTERM", "stop_s": stop_s}
        finally:
            side.close()


def run_whole(world: World, options: argparse.Namespace, done: set[tuple[str, str]]) -> Iterator[Row]:
    """Attack with requests that have no list and ask for everything."""
    for name, frame in whole_requests().items():
        if (f"{name}.(all)", PIPELINE) in done or not wanted(name, options):
            continue
        side = Side(world, options, DENYING if options.denied else AUTHORISER)
        side.start()
        try:
            flood = Flood(side.broker.port, [frame], in_flight=PIPELINED)
            yield {"attack": f"{name}.(all)", "case": PIPELINE, **side.measure(flood, options.seconds)}
        finally:
            side.close()


def run_families(world: World, options: argparse.Namespace, done: set[tuple[str, str]]) -> Iterator[Row]:
    """Attack with joins, parked fetches, unfinished frames and so on, each with a separate broker."""
    for family in FAMILIES:
        if (family.name, "family") not in done and wanted(family.name, options):
            yield {"attack": family.name, "case": "family", **run_family(world, options, family)}


def run_family(world: World, options: argparse.Namespace, family: Family) -> Row:
    side = Side(world, options, {**family.settings, **(DENYING if options.denied else {})})
    side.start()
    try:
        flood = family.flood(side.broker.port, options.size, world.populace)
        row = side.measure(flood, options.seconds * 2, family.requests)
        if family.settings and side.broker.alive:
            row["refused_newcomer"] = refused_newcomer(side.broker.port)
        if options.sigterm and side.broker.alive:
            row["stop_s"] = side.stop_during(family.flood(side.broker.port, options.size, world.populace))
        return row
    finally:
        side.close()


def wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.only or name.startswith(tuple(options.only))


def failures(row: Mapping[str, object]) -> list[str]:
    """Return the goals that a row misses."""
    goals = [
        ("throughput", lambda value: value >= THROUGHPUT_MIN),
        ("p99", lambda value: value <= P99_MAX),
        ("peak_mib", lambda value: value * MIB <= ceiling() + MEMORY_ABOVE),
        ("turn_ms", lambda value: value is None or value <= TURN_MAX_MS),
        ("end_s", lambda value: value is not None and value <= END_MAX_S),
        ("stop_s", lambda value: value is not None and value <= STOP_GOAL_S),
        ("refused_newcomer", lambda value: not value),
    ]
    return [name for name, holds in goals if name in row and not holds(row[name])]


COLUMNS = (
    *("attack", "case", "items", "answered", "throughput", "p99", "max ms"),
    *("MiB", "turn ms", "ends s", "stop s", "load", "misses"),
)


def cells(row: Row) -> list[str]:
    """Return the cells of a table row."""

    def number(key: str, form: str, scale: float = 1.0) -> str:
        if key not in row:
            return ""
        return "> limit" if row[key] is None else format(row[key] * scale, form)

    return [
        row["attack"],
        row["case"],
        number("items", ",.0f"),
        number("answered", ",.0f"),
        number("throughput", ".2f"),
        number("p99", ".1f"),
        number("max_us", ",.0f", 1e-3),
        number("peak_mib", ",.0f") + (" killed" if row.get("killed") else ""),
        number("turn_ms", ".1f") if row.get("turn_ms") is not None else "",
        number("end_s", ".1f"),
        number("stop_s", ".1f"),
        number("load", ".2f"),
        " ".join(failures(row)),
    ]


def table(rows: Iterable[Row], before: Iterable[Row] = ()) -> str:
    """Return the table in Markdown, with an earlier run's figures if there are any."""
    older = {(row["attack"], row["case"]): row for row in before}
    columns = COLUMNS + tuple(f"{name} before" for name in BEFORE) if older else COLUMNS
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in rows:
        found = cells(row)
        if older:
            earlier = older.get((row["attack"], row["case"]), {"attack": "", "case": ""})
            old = dict(zip(COLUMNS, cells(earlier), strict=True))
            found += [old[name] for name in BEFORE]
        lines.append("| " + " | ".join(found) + " |")
    return "\n".join(lines)


BEFORE = ("throughput", "p99", "max ms", "MiB", "ends s", "stop s")
"""Columns of an earlier run that stand next to a later one's."""


def read_rows(path: Path | None) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to attack; default: this one")
    parser.add_argument("--only", action="append", default=[], help="attacks whose id begins so; may be repeated")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES), help=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=4.0, help="of each attack; the baseline takes half of it")
    parser.add_argument("--items", type=int, default=ITEMS, help="names of a long request")
    parser.add_argument("--size", type=float, default=1.0, help="scales the attacks that are no lists")
    parser.add_argument("--topics", type=int, default=2000, help="topics, groups and ACLs that the broker holds")
    parser.add_argument("--denied", action="store_true", help="the attackers' addresses may do nothing (ACLs)")
    parser.add_argument("--guard", type=int, default=4096, help="MiB at which a broker is killed")
    parser.add_argument("--no-sigterm", dest="sigterm", action="store_false", help="stop no broker during attacks")
    parser.add_argument("--rows", type=Path, help="a file to add rows to; those that it has are not run again")
    parser.add_argument("--before", type=Path, help="rows of an earlier run, whose figures stand next to these")
    parser.add_argument("--list", action="store_true", help="print the ids of the attacks and how long all take")
    parser.add_argument("--result", help="name of the file in benchmarks/results")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    attacks = attacks_named(options.only)
    if options.list:
        count = sum(1 for attack in attacks for _ in cases_of(attack, options))
        print("\n".join([*(attack.id for attack in attacks), *(family.name for family in FAMILIES)]))
        print(f"{count} attacks on lists: about {count * (options.seconds * 1.5 + 0.5) / 60:.0f} minutes")
        return 0
    rows = read_rows(options.rows)
    done = {(row["attack"], row["case"]) for row in rows}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafkalite-hostile-", dir=os.environ.get("KAFKALITE_BENCH_DIR")) as folder:
        populace = Populace(topics=options.topics, groups=options.topics, acls=options.topics)
        tree = options.tree.resolve()
        world = World(Path(folder), populace, lambda place, settings: broker_of(tree, place, dict(settings)))
        for run in (run_lists, run_whole, run_families):
            for row in run(world, options, done):
                rows.append(row)
                print(" | ".join(cells(row)), flush=True)
                if options.rows:
                    with options.rows.open("a") as out:
                        out.write(json.dumps(row) + "\n")
    print(table(rows, read_rows(options.before)))
    print(f"{len(rows)} rows, {sum(bool(failures(row)) for row in rows)} miss a goal; {time.monotonic() - began:.0f} s")
    if options.result:
        write_result(options.result, {"rows": rows, "denied": options.denied, "tree": options.tree.name})
    return 0


if __name__ == "__main__":
    sys.exit(main())
