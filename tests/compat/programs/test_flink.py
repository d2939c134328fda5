"""Flink's Kafka source and sink, exactly once: a topic in capitals to another, in a cluster inside one JVM."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.client import READ_COMMITTED, Client
from tests.compat.toolchains import BUILD, NotAvailable, run
from tests.kit.harness.alone import alone

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "flink"
PARTITIONS = 3
TIMEOUT_S = 300
OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.time")]


@alone()
def built() -> Path:
    """The folder with the jars and the class, made when it is not there yet or a source changed."""
    folder = BUILD / "flink"
    sources = [HERE / "pom.xml", HERE / "Capitals.java"]
    complete = folder / "complete"
    if not complete.exists() or complete.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        for tool in ("java", "javac", "mvn"):
            if shutil.which(tool) is None:
                raise NotAvailable(f"{tool} is not on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        run("mvn", "-q", "-B", "-f", str(sources[0]), "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib")
        run("javac", "-cp", f"{folder}/lib/*", "-d", str(folder), str(sources[1]))
        complete.touch()
    return folder


def test_what_is_read_is_written_once_in_capitals(
    bootstrap: str, topic: str, not_run: Callable[[str, str], NoReturn]
) -> None:
    try:
        folder = built()
    except NotAvailable as missing:
        not_run("Flink", str(missing))
    source, target = f"{topic}-in", f"{topic}-out"
    with Client(bootstrap) as client:
        for each in (source, target):
            client.admin.create_topic(each, PARTITIONS)
        for partition in range(PARTITIONS):
            client.produce(source, partition, [b"text %d-%d" % (partition, number) for number in range(20)])
        done = subprocess.run(
            ["java", "-Xmx700m", *OPENED, "-cp", f"{folder}/lib/*:{folder}", "Capitals", bootstrap, source, target],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = [
            bytes(value)
            for partition in range(PARTITIONS)
            for chunk in client.read(target, partition, isolation=READ_COMMITTED)
            for value in chunk.columns.values
        ]
    assert sorted(found) == sorted(
        b"TEXT %d-%d" % (partition, number) for partition in range(PARTITIONS) for number in range(20)
    )
