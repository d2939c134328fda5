"""kill -9 of loads: `python -m tests.kills.loads --engine native --place local --kills 200`.

A topic grows, a load of it is killed at a step or at a random moment and run again. After each kill DuckDB finds each
record below the published positions once; after a series of kills, all records once, in the listed directories too, and
each bad record as one dead letter. The first half of the kills is at steps, spread over all of them. Results are in
build/kills/COMMIT-ENGINE-PLACE, a line a kill; a stopped run continues there. It ends with status 1 when it found
something.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.client import Client
from tests.kills.campaign import commit
from tests.kit.harness.load_scene import PARTITIONS, LoadScene
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until
from tests.kit.processes.dying import runs_of
from tests.kit.processes.hdfs import MiniHdfs
from tests.kit.processes.spark_loader import LOADING
from tests.kit.processes.spark_loading import spark_loader
from tests.power import proof
from tests.spark.conftest import quick_python

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

NATIVE, SPARK = "native", "spark"
LOCAL, HDFS = "local", "hdfs"
LAYOUTS = ("hour", "kind")
"""Folders by hour, and by a column; one for each directory in turn."""
SERIES = 20
"""Kills of one directory."""
STEPS = {NATIVE: 90, SPARK: 40}
"""About the steps of a load: the strides of kills at steps follow from it."""
FINISHED_EVERY = {NATIVE: 2, SPARK: 4}
"""After every second or fourth kill at a step, a load ends: kills hit directories that are whole, and others."""
LONGEST_US = {NATIVE: 200_000.0, SPARK: 30_000_000.0}
"""The longest delay of a kill at a random moment, at first."""
TIMEOUT_S = 400
FINISH_TIMEOUT_S = 1800
"""Of a load of all that killed loads have left."""
BROKEN = (AssertionError, TimeoutError, subprocess.TimeoutExpired)
RECORD_SIZE = 500
AT_RANDOM = "random moment"


@dataclass
class Kill:
    """One kill."""

    number: int
    at: str
    """The step's name, or AT_RANDOM."""
    records: int = 0
    """Records that readers saw afterwards."""
    completed: int = 0
    """Loads that ended before or after the kill."""
    findings: list[str] = field(default_factory=list)


class Runs:
    """Runs of an engine that are killed."""

    def __init__(self, engine: str, scene: LoadScene, folder: Path) -> None:
        self._engine = engine
        self._scene = scene
        self._folder = folder
        self._longest_us = LONGEST_US[engine]
        """It shrinks with loads that were done before, and grows with those that were not."""
        self._forked = {mode: self._forking(mode) for mode in ("steps", "times")}

    def close(self) -> None:
        for _, runs in self._forked.values():
            runs.close()

    def at_step(self, step: int) -> str | None:
        """Kill a load at a step; return the step's name, or None if the load has fewer steps and ended."""
        before = self._names()
        if self._engine == NATIVE:
            killed = self._native("steps", step)
        else:
            with self._spark(step) as process:
                killed = process.wait(TIMEOUT_S) != 0
                self._check_end(process)
        return self._names()[len(before)].replace(f"{self._scene.place}/", "") if killed else None

    def at_random(self, chance: random.Random) -> bool:
        """Kill a load at a random moment; False if it ended before."""
        delay_us = round(chance.random() * self._longest_us)
        if self._engine == NATIVE:
            killed = self._native("times", delay_us)
        else:
            with self._spark(-1) as process:
                wait_until(lambda: LOADING in self._log() or process.poll() is not None, TIMEOUT_S, "Spark")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(delay_us / 1_000_000)
                self._check_end(process)
                killed = process.poll() is None
        self._longest_us *= 1.1 if killed else 0.8
        return killed

    def finish(self) -> None:
        """Load what is left, with the same engine."""
        if self._engine == NATIVE:
            self._scene.finish()
        else:
            with self._spark(-1) as process:
                process.wait(FINISH_TIMEOUT_S)
                self._check_end(process)

    def _names(self) -> list[str]:
        return self._scene.names.read_text().splitlines() if self._scene.names.exists() else []

    def _native(self, mode: str, number: int) -> bool:
        numbers, runs = self._forked[mode]
        numbers.append(number)
        _, status = next(runs)
        return status == "-9"

    def _forking(self, mode: str) -> tuple[deque[int], Generator[tuple[int, str], None, None]]:
        """Numbers of steps or microseconds, and the runs that a program forks for them."""
        numbers: deque[int] = deque()
        each = iter(numbers.popleft, object())
        return numbers, runs_of("tests.kit.processes.native_loader", self._folder, each, mode, *self._scene.words)

    def _spark(self, step: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        servers, topic, letters, place, *more = self._scene.words
        words = ["letters", servers, topic, place, letters, str(step), *more]
        return spark_loader(words, self._folder / "spark.log", quick_python(self._folder))

    def _check_end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.poll() in {None, 0, -signal.SIGKILL}, self._log()[-4000:]

    def _log(self) -> str:
        return (self._folder / "spark.log").read_text(errors="replace")


class Series:
    """One directory and its topic."""

    def __init__(
        self, engine: str, client: Client, servers: str, folder: Path, place: str, layout: str = LAYOUTS[0]
    ) -> None:
        topic = f"loaded-{uuid.uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        client.admin.create_topic(topic, PARTITIONS)
        self.scene = LoadScene(servers, client, topic, folder, place, layout)
        self.runs = Runs(engine, self.scene, folder)
        self.engine = engine

    def kill(self, number: int, step: int | None, chance: random.Random) -> Kill:
        """Kill a load: at a step, if the load has it, or at a random moment. Then check what readers see."""
        row = Kill(number, AT_RANDOM)
        try:
            self.scene.produce(RECORD_SIZE)
            name = None if step is None else self.runs.at_step(step)
            if step is not None and name is None:
                row.completed += 1
                self.scene.produce(RECORD_SIZE)
            row.at = name or AT_RANDOM
            while name is None and not self.runs.at_random(chance):
                row.completed += 1
                self.scene.produce(RECORD_SIZE)
            row.at = row.at.replace(self.scene.topic, "TOPIC")
            row.records = self.scene.check_readers()
            if name is not None and number % FINISHED_EVERY[self.engine] == 0:
                self.runs.finish()
                row.completed += 1
        except BROKEN as error:
            row.findings.append(f"{type(error).__name__}: {str(error)[:2000]}")
        return row

    def end(self, row: Kill) -> None:
        """Load the rest, and add what is wrong to the last kill's findings."""
        try:
            self.runs.finish()
            self.scene.check_everything()
        except BROKEN as error:
            row.findings.append(f"at the end of the series: {type(error).__name__}: {str(error)[:2000]}")
        finally:
            self.runs.close()


def run(
    engine: str,
    place: str,
    count: int,
    seed: int,
    rows_file: Path,
    say: Callable[[str], None],
    series_size: int = SERIES,
) -> list[dict[str, Any]]:
    """Continue until `count` kills are recorded, and return all rows. A directory has `series_size` kills."""
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()] if rows_file.exists() else []
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-load-kills-"))
    stride = max(1, math.ceil(STEPS[engine] / max(1, count // 2)))
    with contextlib.ExitStack() as stack:
        hdfs = stack.enter_context(MiniHdfs(folder / "hdfs")) if place == HDFS else None
        broker = stack.enter_context(contextlib.closing(BrokerProcess(folder / "broker")))
        broker.start()
        client = stack.enter_context(Client(broker.bootstrap, retry_timeout_s=60))
        written = stack.enter_context(rows_file.open("a"))
        while len(rows) < count:
            name = f"series-{len(rows)}"
            target = hdfs.url(f"/{name}") if hdfs is not None else str(folder / name / "loaded")
            layout = LAYOUTS[len(rows) // series_size % len(LAYOUTS)]
            series = Series(engine, client, broker.bootstrap, folder / name, target, layout)
            found = []
            for number in range(len(rows), min(count, len(rows) + series_size)):
                step = number * stride if number < count // 2 else None
                found.append(series.kill(number, step, random.Random(f"{seed} {number}")))
                say(f"{number + 1} of {count}: {found[-1]}")
            series.end(found[-1])
            for row in map(asdict, found):  # a series counts when it has ended
                rows.append(row)
                written.write(json.dumps(row) + "\n")
            written.flush()
            say(f"series ended: {found[-1].findings or 'no findings'}")
    if any(row["findings"] for row in rows):
        say(f"the directories stay in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all rows."""
    steps = {row["at"] for row in rows} - {AT_RANDOM}
    return {
        "kills": len(rows),
        "at_random": sum(row["at"] == AT_RANDOM for row in rows),
        "steps": len(steps),
        "completed": sum(row["completed"] for row in rows),
        "checked": sum(row["records"] for row in rows),
        "findings": sum(len(row["findings"]) for row in rows),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills.loads", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=(NATIVE, SPARK), default=NATIVE)
    parser.add_argument("--place", choices=(LOCAL, HDFS), default=LOCAL)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    tried = commit()
    rows_file = REPOSITORY / "build" / "kills" / f"{tried}-{given.engine}-{given.place}"
    rows_file.parent.mkdir(parents=True, exist_ok=True)
    say = functools.partial(print, flush=True)
    say(f"seed {given.seed}")
    counts = summary(run(given.engine, given.place, given.kills, given.seed, rows_file, say))
    print(counts)
    if not tried.endswith("+"):
        proof.add("loads", tried, {"load": f"{given.engine}, {given.place}", **counts}, str(given.seed))
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
