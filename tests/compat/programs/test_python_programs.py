"""Stream processors from PyPI: each reads a topic and writes capitals to another, in a separate environment.

Each environment is made once, in ~/.cache/kafkalite-tests, from the versions that docs/programs.md names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.client import READ_COMMITTED, Client
from kafkalite.wire.record.columns import Record
from tests.compat.toolchains import CACHE, NotAvailable, run
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PAGE = REPOSITORY / "docs" / "programs.md"
TIMEOUT_S = 120.0
PARTITIONS = 3
PACKAGES = {
    "faststream": "faststream[confluent]==0.7.8",
    "quix": "quixstreams==3.28.1",
    "bytewax": "bytewax[kafka]==0.21.1",
}


@alone()
def python_with(package: str) -> Path:
    """The interpreter of an environment that has a package."""
    folder = CACHE / re.sub(r"\W+", "-", package)
    program = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        run(str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
        (folder / "complete").touch()
    return program


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_read_is_written_in_capitals(
    name: str, bootstrap: str, topic: str, tmp_path: Path, not_run: Callable[[str, str], NoReturn]
) -> None:
    try:
        program = python_with(PACKAGES[name])
    except NotAvailable as missing:
        not_run(name, str(missing))
    source, target = f"{topic}-in", f"{topic}-out"
    expected = {b"TEXT %d-%d" % (partition, number) for partition in range(PARTITIONS) for number in range(20)}
    with Client(bootstrap) as client:
        for each in (source, target):
            client.admin.create_topic(each, PARTITIONS)
        for partition in range(PARTITIONS):
            texts = [Record(-1, -1, b"key %d" % partition, b"text %d-%d" % (partition, i)) for i in range(20)]
            client.produce(source, partition, texts)

        def written() -> list[bytes]:
            chunks = [
                chunk for part in range(PARTITIONS) for chunk in client.read(target, part, isolation=READ_COMMITTED)
            ]
            # Quix adds the count of its store behind the text.
            return [bytes(value).partition(b"#")[0] for chunk in chunks for value in chunk.columns.values]

        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                [str(program), str(HERE / f"{name}_app.py"), bootstrap, source, target],
                cwd=tmp_path,
                env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: len(written()) >= len(expected) or process.poll() not in {None, 0}, TIMEOUT_S, name)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
        found = written()
    assert set(found) == expected, (tmp_path / "output").read_text()[-3000:]
    assert len(found) == len(expected), "each once"


def test_the_page_names_the_versions_that_are_tried() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [package for package in PACKAGES.values() if package.rpartition("==")[2] not in text]
    assert missing == []
    assert sys.version_info >= (3, 11)
