"""Fixtures for power cut tests: the directory `root`, and hooks for each name and sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.oracles.unsynced import NameRecorder, recorded


@pytest.fixture
def recorder(root: Path, tmp_path: Path) -> Iterator[NameRecorder]:
    with recorded(root, tmp_path / "kept") as found:
        yield found
