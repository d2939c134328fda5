"""Many states of many recordings, on all cores, that can be stopped and taken up again.

    build/power/COMMIT/seed-N/          a recording; made once
    build/power/COMMIT/seed-N.states    a line of JSON a judged state
    build/power/COMMIT/replicas-N…      the same of a broker of a cluster
    build/power/COMMIT/audit-N          a line of JSON a recording that was made for the audit alone

A separate process makes each recording and judges each part of its states, so that no forking process has threads.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from tests.kit.processes.broker import REPOSITORY
from tests.power import proof
from tests.power.audit import audit
from tests.power.prove import State, describe, judge_states, numbers_of, plan
from tests.power.recording import Recording, record
from tests.power.replicas.recording import ReplicaRecording, record_replicas
from tests.power.sites import sites

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.power.judge import Verdict

ALONE, REPLICAS = "seed", "replicas"
"""Kinds of recordings, as their names begin."""
STEPS = 1500
AUDIT_STEPS = 14_000
AUDIT_CROWD = 24
REPLICA_STEPS = 1200
PART = 50
"""States that one process judges in a row."""


def commit() -> str:
    """The commit that is tried; with a plus when the tree is not as committed."""
    run = lambda *words: subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()  # noqa: E731
    return run("rev-parse", "--short=10", "HEAD") + ("+" if run("status", "--porcelain", "kafkalite", "ext") else "")


def prove(
    seeds: list[int], state_count: int, acks: int, jobs: int, overrides: dict[str, str], model: str | None = None
) -> int:
    """States and audit; status 1 when there are findings."""
    began = time.monotonic()
    place = REPOSITORY / "build" / "power" / (commit() + "".join(f" {key}={text}" for key, text in overrides.items()))
    place.mkdir(parents=True, exist_ok=True)
    with _pool(jobs) as pool:
        names = [f"{kind}-{seed}" for seed in seeds for kind in (ALONE, REPLICAS)]
        for name in names:
            pool.submit(_record, place, name, overrides).result()
        parts = [
            (name, numbers[i : i + PART])
            for name in names
            for numbers in [_missing(place, name, state_count, model)]
            for i in range(0, len(numbers), PART)
        ]
        for done in as_completed([pool.submit(_judge_part, place, name, numbers) for name, numbers in parts]):
            for text in done.result():
                print(text, flush=True)
        seed = 1000
        while _audited(place)[0] < acks and seed < 1000 + len(seeds) * 20:
            if not _path(place, f"audit-{seed}").exists():
                pool.submit(_audit_only, place, seed, overrides).result()
            seed += 1
    summary = summarise(place)
    summary["minutes"] = round((time.monotonic() - began) / 60, 1)
    print(json.dumps(summary, indent=2))
    if not overrides:
        proof.add("power", commit(), summary, ", ".join(map(str, seeds)))
    return 1 if summary["findings"] or summary["early"] else 0


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1)


def _path(place: Path, name: str) -> Path:
    return place / name


def _record(place: Path, name: str, overrides: dict[str, str]) -> None:
    """Makes a recording, unless there is one."""
    target = place / name
    if not (target / "about.json").exists():
        kind, _, seed = name.partition("-")
        recording = (
            record(int(seed), steps=STEPS, overrides=overrides)
            if kind == ALONE
            else record_replicas(int(seed), steps=REPLICA_STEPS, overrides=overrides)
        )
        recording.save(target)
        found = audit(recording)
        row = {"count": found.count, "gone": found.gone, "early": found.early[:20], "early_count": len(found.early)}
        (place / f"audit-{seed if kind == ALONE else name}").write_text(json.dumps(row))


def _audit_only(place: Path, seed: int, overrides: dict[str, str]) -> None:
    recording = record(seed, steps=AUDIT_STEPS, kills=2, overrides=overrides, delay_permille=100, crowd=AUDIT_CROWD)
    found = audit(recording)
    if found.early:
        recording.save(place / f"audit-recording-{seed}")
    row = {"count": found.count, "gone": found.gone, "early": found.early[:20], "early_count": len(found.early)}
    (place / f"audit-{seed}").write_text(json.dumps(row))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a results file that are whole."""
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # the process was ended while it wrote


def _missing(place: Path, name: str, count: int, model: str | None = None) -> list[int]:
    done = {row["number"] for row in _rows(place / f"{name}.states")}
    return [number for number in itertools.islice(numbers_of(model), count) if number not in done]


def _load(saved: Path) -> Recording:
    return (ReplicaRecording if saved.name.startswith(REPLICAS) else Recording).load(saved)


def _judge_part(place: Path, name: str, numbers: list[int]) -> list[str]:
    """Judge some states of a recording, write a line for each, and return the findings to report."""
    saved = place / name
    recording = _load(saved)
    told = []
    descriptor = os.open(place / f"{name}.states", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for state, verdict in judge_states(recording, plan(recording, numbers)):
        os.write(descriptor, (json.dumps(row_of(state, verdict)) + "\n").encode())
        if verdict.findings:
            told.append(describe(recording, state, verdict, saved))
    os.close(descriptor)
    return told


def row_of(state: State, verdict: Verdict) -> dict[str, Any]:
    return {
        "number": state.number,
        "moment": state.moment,
        "model": state.model,
        "findings": verdict.findings,
        "refused": verdict.refused,
        "cpu_s": round(verdict.cpu_s, 4),
    }


def _audited(place: Path) -> tuple[int, int]:
    """(answers looked at, early ones) of all recordings."""
    rows = [row for path in place.glob("audit-*") if path.is_file() for row in _rows(path)]
    return sum(row["count"] for row in rows), sum(row["early_count"] for row in rows)


def summarise(place: Path) -> dict[str, Any]:
    """Counts of everything that was done for a commit."""
    states: dict[str, int] = {}
    replicas: dict[str, int] = {}
    findings = refused = 0
    cpu_s = 0.0
    files = sorted(place.glob(f"{ALONE}-*.states"))
    for path in (*files, *sorted(place.glob(f"{REPLICAS}-*.states"))):
        counted = states if path in files else replicas
        for row in {row["number"]: row for row in _rows(path)}.values():
            counted[row["model"]] = counted.get(row["model"], 0) + 1
            findings += bool(row["findings"])
            refused += bool(row["refused"])
            cpu_s += row["cpu_s"]
    audited, early = _audited(place)
    count = sum(states.values()) + sum(replicas.values())
    return {
        "seeds": len(files),
        "states": states,
        "replicas": replicas,
        "findings": findings,
        "refused": refused,
        "audited": audited,
        "early": early,
        "cpu_s_per_state": round(cpu_s / count, 3) if count else 0,
    }


def again(saved: Path, number: int, keep: Path | None) -> int:
    """One state once more; its directory may be kept."""
    os.environ["POWER_SHOW_LOG"] = "1"
    recording = _load(saved)
    for state, verdict in judge_states(recording, plan(recording, [number]), keep=keep):
        print(describe(recording, state, verdict, saved))
        return 1 if verdict.findings else 0
    return 0


def leave_out(wanted: list[str], seeds: list[int], state_count: int, jobs: int) -> int:
    """For each site, recordings without it until a state or the audit finds it."""
    place = REPOSITORY / "build" / "power" / f"{commit()} left out"
    place.mkdir(parents=True, exist_ok=True)
    unfound = []
    with _pool(jobs) as pool:
        waiting = {pool.submit(_leave_out, place, site, seeds, state_count): site for site in wanted or sites()}
        for done in as_completed(waiting):
            row = done.result()
            print(json.dumps(row), flush=True)
            if not row["found"]:
                unfound.append(row["site"])
    print(f"{len(waiting) - len(unfound)} of {len(waiting)} found; not: {unfound}")
    return 0


def _leave_out(place: Path, site: str, seeds: list[int], state_count: int) -> dict[str, Any]:
    path = place / f"{site.replace(':', ' ')}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    row: dict[str, Any] = {"site": site, "found": "", "states": 0, "early": 0}
    for seed in seeds:
        if row["found"]:
            break
        try:
            recording = record(seed, steps=STEPS, left_out=site)
        except AssertionError as error:
            row["found"] = f"seed {seed}: the workload failed: {str(error)[:300]}"
            break
        found = audit(recording)
        row["early"] += len(found.early)
        for part in _parts(state_count):
            for state, verdict in judge_states(recording, plan(recording, part)):
                row["states"] += 1
                if verdict.findings:
                    row["found"] = f"seed {seed}, {state.model}, moment {state.moment}: {verdict.findings[0][:300]}"
                    break
            if row["found"]:
                break
    path.write_text(json.dumps(row))
    return row


def _parts(count: int) -> Iterable[range]:
    return (range(first, min(first + PART, count)) for first in range(0, count, PART))


def forget(place: Path) -> None:
    """Removes what was found for a commit."""
    shutil.rmtree(place, ignore_errors=True)
