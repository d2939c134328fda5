"""Run `tests.kit.processes.spark_loader` in a separate session, so that a kill ends Python and Java at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kit.processes.broker import REPOSITORY


@contextlib.contextmanager
def spark_loader(words: Sequence[str], log: Path, python: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program with its output in `log` and workers that `python` starts; afterwards nothing of it is left."""
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.processes.spark_loader", *words],
            cwd=REPOSITORY, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
