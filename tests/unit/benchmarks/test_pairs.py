"""The confidence interval that decides whether one tree is slower than another."""

import sys
from pathlib import Path

import pytest

from benchmarks.pairs import broker_of, interval
from tests.kit.processes.broker import REPOSITORY


def test_equal_pairs_have_an_interval_of_no_width() -> None:
    assert interval([2.0] * 15) == pytest.approx((2.0, 2.0, 2.0))


def test_noise_around_one_leaves_one_inside() -> None:
    mean, low, high = interval([0.8, 1.25] * 8)
    assert mean == pytest.approx(1.0)
    assert low < 1 < high


def test_a_drop_in_every_pair_lies_below_one() -> None:
    _, _, high = interval([0.90, 0.92, 0.91, 0.89, 0.93] * 3)
    assert high < 1


def test_one_pair_says_nothing() -> None:
    assert interval([0.5])[1:] == (0.0, float("inf"))


PROGRAM = """
import signal, sys
from pathlib import Path

ready = Path(sys.argv[sys.argv.index("--ready-file") + 1])
ready.with_name("writing").write_text(__file__)
ready.with_name("writing").rename(ready)
signal.pause()
"""


def test_broker_is_the_trees_own_wherever_it_is_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "older"
    (tree / "kafkalite").mkdir(parents=True)
    (tree / "kafkalite" / "__main__.py").write_text(PROGRAM)
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(REPOSITORY)
    broker = broker_of(tree, tmp_path / "run").start()
    broker.close()
    assert (tmp_path / "run" / "ready").read_text() == str(tree / "kafkalite" / "__main__.py")
