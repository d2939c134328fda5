"""One data directory under load, served by brokers of several releases in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.directories import upgrade
from tests.directories.__main__ import COMMIT, ENDS, tree_of
from tests.directories.released import unpack
from tests.kit.processes.broker import REPOSITORY

pytestmark = pytest.mark.integration


def test_a_released_directory_serves_load_over_restarts(tmp_path: Path) -> None:
    """The directory of 0.1.0, which has data in it, with this tree's broker, which stops and is killed."""
    unpack("0.1.0", tmp_path)
    result = upgrade.run(tmp_path, [REPOSITORY] * 3, ENDS, 300)
    assert result.findings == []
    assert result.read == result.acknowledged == result.given >= 900
    assert min(result.transactions, result.aborted) > 0


@pytest.mark.slow
def test_0_1_0_is_upgraded_under_load_and_rolled_back(tmp_path: Path) -> None:
    older = tree_of(COMMIT)
    result = upgrade.run(tmp_path, [older, REPOSITORY, older, REPOSITORY, older], ENDS, 2000)
    assert result.findings == []
    assert result.read == result.acknowledged == result.given >= 10_000
    assert min(result.transactions, result.aborted) > 0
