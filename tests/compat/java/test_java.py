"""Apache Kafka's Java client 4.x: fetched with Maven once into build/compat/java, compiled there, one JVM per check."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.compat.doors import DoorChecks
from tests.compat.records import CODECS, stored_codecs
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "java"
TIMEOUT_S = 120


@alone()
def build() -> None:
    """Jars and class files in build/compat/java, made anew when a source is newer."""
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
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{BUILD}/lib/*:{BUILD}"]
        done = subprocess.run(
            [*command, "CompatClient", bootstrap, check, topic, argument],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{check}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return call


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "1"), ("none", "0"), ("gzip", "all"), ("snappy", "1"), ("lz4", "all"), ("zstd", "1")]
)
def test_produce_reads_back_with_its_codec(
    java: Callable[..., None], bootstrap: str, topic: str, codec: str, acks: str
) -> None:
    java("codec", topic, f"{codec}/{acks}")
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
def test_check(java: Callable[..., None], topic: str, check: str) -> None:
    java(check, topic)


@pytest.mark.slow
class TestDoors(DoorChecks):
    """Stores are PEM files, as Kafka takes them since 2.7."""

    @pytest.fixture
    def check(self, java: Callable[..., None]) -> Callable[..., None]:
        return java
