"""The checkers of transactions and groups themselves: each planted fault must be found, and an honest run be clean."""

from __future__ import annotations

import pytest

from tests.kit.fakes.cheating_broker import play

FAULTS = {
    "forgotten-sequence": {"ledger": {"doubled"}},
    "lso-ahead": {"live": {"early", "skipped"}},
    "aborted-forgotten": {"ledger": {"aborted"}},
    "half-committed": {"ledger": {"part", "lost"}},
    "commit-forgotten": {"ledger": {"lost"}},
    "lso-back": {"stable": {"backwards"}},
    "pending-offset-lost": {"copy": {"doubled"}},
    "pending-offset-kept": {"copy": {"lost"}},
    "double-owner": {"owners": {"owners"}},
    "position-ahead": {"positions": {"unread"}},
}


@pytest.mark.parametrize("number", range(5))
def test_honest_run_is_clean(seed: int, number: int) -> None:
    verdicts = play("", seed + number)
    assert all(verdicts.values()), {name: str(verdict) for name, verdict in verdicts.items()}
    assert all(verdict.read_count > 30 for verdict in verdicts.values()), "a run that showed nothing"


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found(seed: int, fault: str, number: int) -> None:
    verdicts = play(fault, seed + number)
    for name, kinds in FAULTS[fault].items():
        assert verdicts[name].kinds & kinds, f"{name} of seed {seed + number}: {verdicts[name]}"
