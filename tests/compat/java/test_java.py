"""Apache Kafka's Java client 4.x, fetched with Maven once into build/compat/java; all checks share a JVM."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NoReturn

import pytest

from tests.compat.doors import DoorChecks
from tests.compat.records import CODECS, stored_codecs
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "java"
TIMEOUT_S = 120
COMMAND = (
    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-cp", f"{BUILD}/lib/*:{BUILD}", "CompatClient"),
)


@alone()
def build() -> None:
    """Build jars and class files in build/compat/java, again when a source is newer."""
    done = BUILD / "complete"
    sources = [HERE / "pom.xml", HERE / "CompatClient.java"]
    if done.exists() and done.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    shutil.rmtree(BUILD, ignore_errors=True)  # jars of another release
    BUILD.mkdir(parents=True)
    fetch = ["mvn", "-q", "-B", "-f", str(sources[0]), "dependency:copy-dependencies", f"-DoutputDirectory={BUILD}/lib"]
    compile_ = ["javac", "-Xlint:all", "-Werror", "-cp", f"{BUILD}/lib/*", "-d", str(BUILD), str(sources[1])]
    for command in (fetch, compile_):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    done.touch()


@pytest.fixture(scope="module")
def java(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., None]:
    """`java(check, topic, argument)` runs one check of CompatClient."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            not_run("Java kafka-clients", f"{tool} is not on the PATH (apt-get install openjdk-17-jdk-headless maven)")
    try:
        build()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        not_run("Java kafka-clients", f"could not be built: {error} {getattr(error, 'stderr', '')}")

    def call(check: str, topic: str, argument: str = "") -> None:
        done = subprocess.run(
            [*COMMAND, bootstrap, check, topic, argument],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{check}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return call


@pytest.fixture(scope="module")
def one_jvm(java: Callable[..., None], bootstrap: str) -> Iterator[Callable[..., None]]:
    """The same in one JVM, which stays: to start one takes longer than a check."""
    with subprocess.Popen([*COMMAND, bootstrap, "-"], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None

        def call(check: str, topic: str, argument: str = "") -> None:
            timer = threading.Timer(TIMEOUT_S, jvm.kill)
            timer.start()
            print(check, topic, argument, sep="\t", file=jvm.stdin, flush=True)
            lines = []
            for line in jvm.stdout:
                lines.append(line)
                if line in {"ok\n", "failed\n"}:
                    break
            timer.cancel()
            assert lines[-1:] == ["ok\n"], f"{check}: {''.join(lines)[-4000:]}"

        yield call


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "1"), ("none", "0"), ("gzip", "all"), ("snappy", "1"), ("lz4", "all"), ("zstd", "1")]
)
def test_produce_reads_back_with_its_codec(
    one_jvm: Callable[..., None], bootstrap: str, topic: str, codec: str, acks: str
) -> None:
    one_jvm("codec", topic, f"{codec}/{acks}")
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


CHECKS = {
    "edges": "produce, consume",
    "positions": "produce, consume",
    "sessions": "produce, consume",
    "idempotent": "idempotent",
    "times": "seek by time",
    "admin": "admin",
    "records": "admin",
    "group": "groups",
    "cooperative": "groups",
    "transaction": "transactions",
    "next-uniform": "KIP-848",
    "next-range": "KIP-848",
    "consumer": "KIP-848",
}


@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.capability(cell)) for name, cell in CHECKS.items()]
)
def test_check(one_jvm: Callable[..., None], topic: str, check: str) -> None:
    one_jvm(check, topic)


@pytest.mark.slow
class TestDoors(DoorChecks):
    """Stores are PEM files, as Kafka takes them since 2.7."""

    @pytest.fixture
    def check(self, java: Callable[..., None]) -> Callable[..., None]:
        return java
