"""One Spark session for the run, whose workers import the tree that is tested, and which has Spark's own connector."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.processes import spark_connector
from tests.kit.processes.maven import NotAvailable

ROOT = Path(__file__).resolve().parents[2]


SOURCE_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module of a streaming source's Python process."""
LATE_S: Final = 12
"""Longer than Spark waits for that process."""


def quick_python(folder: Path) -> Path:
    """This interpreter for workers. Spark puts PySpark as an archive into their PYTHONPATH, which is compiled at each
    start of one; the installed package is not, so that a worker is there within Spark's ten seconds on a busy machine.
    With a file `late` in the folder, the next process of a streaming source is too late, and the file is removed.
    """
    script = folder / "python"
    late = shlex.quote(str(folder / "late"))
    script.write_text(
        "#!/bin/sh\n"
        f'[ "$2" = {SOURCE_RUNNER} ] && rm {late} 2>/dev/null && sleep {LATE_S}\n'
        f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    return script


def connector_settings() -> dict[str, str]:
    """For `format("kafka")`; nothing where Maven cannot fetch it, which the tests of that report by themselves."""
    try:
        return spark_connector.settings()
    except NotAvailable:
        return {}


@pytest.fixture(scope="session")
def sparks_connector() -> None:
    """For tests that need `format("kafka")` in the session."""
    try:
        spark_connector.connector_jars()
    except NotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Two cores; small enough for a machine that does other things besides."""
    from kafkalite.spark.session import session

    os.environ["PYSPARK_PYTHON"] = str(quick_python(tmp_path_factory.mktemp("python")))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        **connector_settings(),
    }
    running = session("kafkalite-tests", master="local[2]", settings=settings)
    yield running
    running.stop()


@pytest.fixture
def late_source(spark: Any) -> Iterator[Path]:
    """The Python process of the next streaming source is too late for Spark. The file is gone once it has started."""
    late = Path(spark.sparkContext.pythonExec).with_name("late")
    late.touch()
    yield late
    late.unlink(missing_ok=True)
