"""Crash states of a recording, drawn by number, judged one after the other; each can be made again alone."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.power import states
from tests.power.disk import Disk
from tests.power.judge import Verdict, judge
from tests.power.moments import Moments
from tests.power.recorder import scratch
from tests.power.replicas.judge import look_at_replicas
from tests.power.replicas.recording import ReplicaRecording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.power.recording import Recording

MODELS = ("posix", "ext4", "series")


def numbers_of(model: str | None) -> Iterator[int]:
    """The numbers of a model's states, or of all."""
    first = 0 if model is None else MODELS.index(model)
    return itertools.count(first, 1 if model is None else len(MODELS))


@dataclass(frozen=True)
class State:
    """The number of a state in its recording, and the moment and the draw that it represents."""

    number: int
    moment: int
    model: str


def plan(recording: Recording, numbers: Iterable[int]) -> list[State]:
    """The states of these numbers, earliest moment first."""
    moments = Moments(recording.root, recording.records)
    found = []
    for number in numbers:
        draw = random.Random(f"{recording.name} state {number}")
        model = MODELS[number % len(MODELS)]
        moment = moments.draw_series(draw) if model == "series" else moments.draw(draw)
        found.append(State(number, moment, model))
    return sorted(found, key=lambda state: state.moment)


def judge_states(
    recording: Recording, planned: Iterable[State], *, keep: Path | None = None
) -> Iterator[tuple[State, Verdict]]:
    """Judges states in the order of their moments; a copy of each as it was may be kept."""
    disk = Disk(recording.root)
    look = look_at_replicas if isinstance(recording, ReplicaRecording) else None
    records = iter(recording.records)
    following = next(records, None)
    place = scratch()
    try:
        for state in planned:
            began = time.process_time()
            while following is not None and following.place < state.moment:
                disk.play(following)
                following = next(records, None)
            draw = random.Random(f"{recording.name} content {state.number}")
            root = place / "disk"
            root.mkdir()
            states.write(states.MODELS[state.model](disk, draw), root)
            if keep is not None:
                shutil.copytree(root, keep / str(state.number), symlinks=True)
            spent = time.process_time() - began
            verdict = judge(root / "var" / "data", recording, state.moment, look)
            verdict.cpu_s += spent
            shutil.rmtree(root)
            yield state, verdict
    finally:
        shutil.rmtree(place, ignore_errors=True)


def describe(recording: Recording, state: State, verdict: Verdict, saved: Path | None) -> str:
    """A finding, and how to see it again."""
    text = "\n    ".join(verdict.findings)
    again = f"\n  again: python -m tests.power again {saved} {state.number}" if saved is not None else ""
    return f"{recording.name}, state {state.number}, {state.model}, moment {state.moment}:\n    {text}{again}"
