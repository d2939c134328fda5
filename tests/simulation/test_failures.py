"""The core of kafkalite.failures by seeds: members that die at any step, and a death after each step there is.

`python -m tests.simulation.failures 0-9999 --progress FILE` tries more, and takes up where it was stopped.
"""

import os
import subprocess
import sys
from subprocess import PIPE

import pytest

from kafkalite.failures import moves
from kafkalite.failures.lanes import KeyChains, PartitionLane
from kafkalite.failures.names import parse_origin
from kafkalite.failures.runs import CRASHED
from kafkalite.failures.session import Session
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY
from tests.simulation.failure_world import faults, final_state, run_poisoned, run_seed

SEEDS = 300
EVERY_STEP = (9, 16, 38, 46, 53, 60, 72, 74)
"""Seeds whose runs between them have every strategy, both orders, and keys that are held."""
BROKEN = (4192, 7671, 8340, 9282, 11563)
"""Seeds that have found broken promises."""


@pytest.mark.parametrize("first", sample(range(0, SEEDS, 100), 1))
def test_no_death_breaks_a_promise(first: int) -> None:
    assert {seed: found for seed in range(first, first + 100) if (found := list(faults(run_seed(seed))))} == {}


@pytest.mark.parametrize("seed", BROKEN)
def test_what_broke_a_promise_once_breaks_none(seed: int) -> None:
    assert list(faults(run_seed(seed))) == []


@pytest.mark.parametrize("seed", sample(EVERY_STEP, 3))
def test_a_death_after_any_step_changes_nothing_in_the_end(seed: int) -> None:
    whole = run_seed(seed, death=0.0, members=1)
    assert list(faults(whole)) == []
    has_killers = "kill" in (whole.scenario.call_fates or ())  # a death may take the place of one that they cause
    more = {0, 1} if has_killers else {1}
    for step in range(1, whole.played + 1):
        died = run_seed(seed, die_at={step}, death=0.0, members=1)
        assert (step, list(faults(died))) == (step, [])
        assert (step, died.lives - whole.lives in more) == (step, True)
        assert (step, final_state(died)) == (step, final_state(whole))


@pytest.mark.parametrize("seeds", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_a_record_that_ends_the_process_takes_no_other_with_it(seeds: int) -> None:
    killers = calls = 0
    for seed in range(seeds):
        world = run_seed(seed, death=0.0, members=1)
        for text, row in world.ledger.items():
            if row.exception == CRASHED:
                partition, offset = parse_origin(text)
                killers += 1
                if partition.topic in world.policy.layout.dead_lanes:
                    letter = world.logs[partition][offset].letter
                    assert letter is not None
                    calls += 1
                    assert (seed, text, world.scenario.call_fate(letter.offset)) == (seed, text, "kill")
                else:
                    assert (seed, text, world.scenario.fates[partition][offset]) == (seed, text, "kill")
    assert killers > seeds / 8
    assert calls > seeds / 80


@pytest.mark.parametrize("marking", sample([1.0, 0.6, 0.0], 1), ids=["marks", "marks that are lost", "no marks"])
@pytest.mark.parametrize("kills", sample([3, 0], 1))
@pytest.mark.parametrize("seeds", sample([40, 100], 1))
def test_records_that_end_the_process_are_dead_adjacent_or_apart_and_no_other_is_blamed(
    kills: int, marking: float, seeds: int
) -> None:
    for seed in range(seeds):
        world = run_poisoned(seed, kills=kills, marking=marking)
        assert (seed, list(faults(world))) == (seed, [])
        crashed = {parse_origin(text) for text, row in world.ledger.items() if row.exception == CRASHED}
        poison = {
            (partition, offset)
            for partition, fates in world.scenario.fates.items()
            for offset, fate in enumerate(fates)
            if fate == "kill"
        }
        if world.policy.moves == "exactly once" and world.policy.after_dead == "continue":
            assert (seed, poison - crashed) == (seed, set())
        # A record in hand at two crashes looks like one that causes them.
        blamed = {where for where in crashed - poison if world.noted_at_deaths[where] < 2}
        assert (seed, blamed if kills else crashed - poison) == (seed, set())


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = run_seed(77), run_seed(77)
    assert (first.steps, first.successes, first.ledger) == (again.steps, again.successes, again.ledger)


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    """Sets of text have another order there."""
    command = [sys.executable, "-m", "tests.simulation.failures", "4192"]
    said = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": order}, cwd=REPOSITORY, stdout=PIPE).stdout
        for order in "0123"
    }
    assert len(said) == 1
    assert b" steps, 0 seeds" in said.pop()


@pytest.mark.parametrize("seeds", [200])
def test_letters_that_are_not_looked_up_are_found_out(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    """The rule that a letter is alive only while the ledger names it."""
    assigned = Session._assigned

    def believe_all(self: Session, event: object) -> None:
        assigned(self, event)
        for lane in self._lanes.values():
            if lane.is_retry:
                lane.known = lane.position

    monkeypatch.setattr(Session, "_assigned", believe_all)
    assert any(list(faults(run_seed(seed))) for seed in range(seeds))


def test_moves_that_overtake_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that a record moves only together with all earlier ones."""
    monkeypatch.setattr(
        PartitionLane, "movable", lambda self: iter([self.moving[offset] for offset in sorted(self.moving)])
    )
    assert any(list(faults(run_seed(seed))) for seed in range(300))


def test_keys_that_are_not_held_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that nothing of a held key runs but what it waits for."""
    monkeypatch.setattr(KeyChains, "_is_held", lambda self, key, offset: False)
    assert any(list(faults(run_seed(seed))) for seed in range(100))


def test_transactions_that_overtake_plain_commits_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that of a partition one thing is under way at a time."""
    monkeypatch.setattr(PartitionLane, "committing", property(lambda self: 0, lambda self, number: None), raising=False)
    assert any("committed back" in found for seed in range(100) for found in faults(run_seed(seed)))


def test_outputs_that_are_committed_without_all_records_of_their_batch_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule that what a call sends is committed with all records of the call."""
    monkeypatch.setattr(moves, "whole_bundles", lambda lane, found: found)
    monkeypatch.setattr(moves, "MOVES_MAX", 3)
    assert any("was written 2 times" in found for seed in range(2, 400, 5) for found in faults(run_seed(seed)))


def test_batches_go_into_transactions_that_hold_hardly_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "MOVES_MAX", 8)
    assert {seed: found for seed in range(2, 400, 5) if (found := list(faults(run_seed(seed))))} == {}
