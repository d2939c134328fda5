"""Some kills of loads, and planted faults, which have to be found. `make prove FAMILY=loads` does two hundred."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.client import Client
from kafkalite.load import contents
from kafkalite.load.manifest import MANIFESTS
from tests.kills import loads
from tests.kit.harness.samples import sample
from tests.kit.processes.maven import NotAvailable

pytestmark = pytest.mark.integration

SEED = 9


@pytest.mark.parametrize(
    ("engine", "place", "count"),
    [
        (loads.NATIVE, loads.LOCAL, 6),
        pytest.param(loads.NATIVE, loads.HDFS, 4, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param(loads.SPARK, loads.LOCAL, 2, marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param(
            loads.SPARK, loads.HDFS, 2, marks=[pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
        ),
    ],
)
def test_some_kills_lose_nothing_and_are_not_done_again(engine: str, place: str, count: int, tmp_path: Path) -> None:
    rows_file = tmp_path / "rows"
    series_size = count // 2
    try:
        loads.run(engine, place, series_size, SEED, rows_file, print, series_size)
        rows = loads.run(engine, place, count, SEED, rows_file, print, series_size)
    except NotAvailable as error:
        pytest.skip(str(error))  # Hadoop or Spark's connector cannot be fetched, so there is nothing to kill
    assert [json.loads(line) for line in rows_file.read_text().splitlines()] == rows
    counts = loads.summary(rows)
    assert (counts["kills"], counts["findings"]) == (count, 0), rows
    assert 0 < counts["at_random"] < count, "both kinds of kills"


@pytest.fixture
def series(kafka_broker, tmp_path: Path) -> Iterator[loads.Series]:
    with Client(kafka_broker.bootstrap_servers, retry_timeout_s=60) as client:
        folder = tmp_path / "series"
        yield loads.Series(loads.NATIVE, client, kafka_broker.bootstrap_servers, folder, str(folder / "loaded"))


def a_file_copied(scene: loads.LoadScene) -> None:
    """Readers of directories see its records twice."""
    name = contents.files(scene.place)[0].path
    shutil.copy(f"{scene.place}/{name}", f"{scene.place}/{name.removesuffix('.parquet')}-again.parquet")


def a_file_replaced(scene: loads.LoadScene) -> None:
    """Its records are those of another file: some twice, some not at all."""
    one, other = (file.path for file in contents.files(scene.place)[:2])
    shutil.copy(f"{scene.place}/{one}", f"{scene.place}/{other}")


def a_commit_forgotten(scene: loads.LoadScene) -> None:
    """The next load loads it again, and sends its letters again."""
    max((Path(scene.place) / MANIFESTS).glob("*[0-9].json")).unlink()


@pytest.mark.parametrize("fault", sample([a_file_copied, a_commit_forgotten, a_file_replaced], 1))
def test_a_directory_that_is_wrong_is_found(series: loads.Series, fault: Callable[[loads.LoadScene], None]) -> None:
    series.scene.produce()
    series.runs.finish()
    fault(series.scene)
    row = series.kill(0, 3, random.Random(SEED))
    series.end(row)
    assert row.findings, fault.__doc__
