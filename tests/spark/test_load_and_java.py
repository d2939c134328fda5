"""`kafkalite load` where Java cannot start (one sentence, status 2), and where it fails later (the same, status 1)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import EXIT_FAILURE, EXIT_USAGE
from kafkalite.client import Client
from kafkalite.spark import load
from tests.kit.processes.broker import REPOSITORY, wait_until
from tests.spark.conftest import quick_python

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TIMEOUT_S = 400
OLD_JAVA = """#!/bin/sh
for word in "$@"; do
  [ "$word" = -version ] && { echo 'openjdk version "11.0.2" 2019-01-15' >&2; exit 0; }
done
echo "Error: LinkageError occurred while loading main class org.apache.spark.launcher.Main" >&2
exit 1
"""
"""What a Java 11 says and does; none is to be had here."""


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    with Client(kafka_broker.bootstrap_servers) as client:
        for _ in range(20):
            client.produce(kafka_topic, 0, [os.urandom(1000) for _ in range(100)])
    return kafka_topic


def words_for(broker: Broker, topic: str, target: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "kafkalite", "load", "-b", broker.bootstrap_servers, "-t", topic, "-q"]
    return [*words, "--to", str(target), "--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1", *more]


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": str(quick_python(folder)), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run(words: list[str], variables: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        words, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def java_home(folder: Path, text: str, mode: int) -> str:
    """A JAVA_HOME with this as its java."""
    (folder / "bin").mkdir()
    (folder / "bin" / "java").write_text(text)
    (folder / "bin" / "java").chmod(mode)
    return str(folder)


class TestJavaThatCannotStart:
    @pytest.mark.parametrize(
        ("case", "message"),
        [
            ("none", "no Java found; install Java 17 or newer"),
            ("wrong home", "JAVA_HOME is '.*', which has no bin/java; Spark needs Java 17 or newer"),
            ("too old", "Spark cannot start: .*/bin/java is Java 11; Spark needs Java 17 or newer"),
            ("not executable", "Spark cannot start: cannot run .*/bin/java [(].*[)]; Spark needs Java 17"),
            ("broken", "Spark cannot start: .*/bin/java does not start with a heap of 1g .*: it printed nothing"),
            ("no Spark there", "Spark cannot start: .*No such file or directory"),
        ],
    )
    def test_environments(self, kafka_broker: Broker, topic: str, tmp_path: Path, case: str, message: str) -> None:
        folder = tmp_path / "java"
        folder.mkdir()
        variables = environment(tmp_path)
        if case == "none":
            variables |= {"PATH": str(folder), "JAVA_HOME": ""}
        elif case == "no Spark there":
            variables["SPARK_HOME"] = str(folder)
        else:
            texts = {"too old": (OLD_JAVA, 0o755), "not executable": ("#!/bin/nothing", 0o755)}
            texts["broken"] = ("#!/bin/sh\nexit 3\n", 0o755)
            variables["JAVA_HOME"] = str(folder) if case == "wrong home" else java_home(folder, *texts[case])
        assert_one_sentence(run(words_for(kafka_broker, topic, tmp_path / "loaded"), variables), message)

    @pytest.mark.parametrize(
        ("memory", "message"),
        [
            ("900000g", "java does not start with a heap of 900000g .*: Could not reserve enough space"),
            ("much", "java does not start with a heap of much .*: Invalid maximum heap size"),
            ("100m", ".*Insufficient driver memory"),
        ],
    )
    def test_memory(self, kafka_broker: Broker, topic: str, tmp_path: Path, memory: str, message: str) -> None:
        words = words_for(kafka_broker, topic, tmp_path / "loaded", "--conf", f"spark.driver.memory={memory}")
        assert_one_sentence(run(words, environment(tmp_path)), f"Spark cannot start: {message}")

    def test_a_limit_on_memory(self, kafka_broker: Broker, topic: str, tmp_path: Path) -> None:
        words = words_for(kafka_broker, topic, tmp_path / "loaded")
        limited = ["bash", "-c", 'ulimit -v 1500000; exec "$@"', "limited", *words]
        message = "Spark cannot start: java does not start with a heap of 1g .*: Could not "
        assert_one_sentence(run(limited, environment(tmp_path)), message)

    def test_topics_and_brokers_are_looked_for_first(self, kafka_broker: Broker, tmp_path: Path) -> None:
        """A topic that is not there is known at once, not when Spark is up: here it cannot be."""
        variables = environment(tmp_path, JAVA_HOME=str(tmp_path))
        words = words_for(kafka_broker, "no-such-topic", tmp_path / "loaded")
        assert_one_sentence(run(words, variables), "topic no-such-topic: .*UNKNOWN_TOPIC_OR_PARTITION")
        words[words.index("-b") + 1] = "127.0.0.1:1"
        assert_one_sentence(run(words, variables), "cannot connect to 127.0.0.1:1")


def assert_one_sentence(done: tuple[int, str, str], message: str) -> None:
    status, out, errors = done
    assert (status, out) == (EXIT_USAGE, ""), errors[-4000:]
    assert re.fullmatch(f"kafkalite: {message}.*\n", errors), errors


class TestJavaThatFailsLater:
    def test_killed(self, kafka_broker: Broker, topic: str, tmp_path: Path) -> None:
        """What was published stays, and the next run loads the rest."""
        target = tmp_path / "loaded"
        words = words_for(kafka_broker, topic, target, "--follow", "0.1")
        process = subprocess.Popen(
            words, cwd=REPOSITORY, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_until(lambda: target.exists() and bool(load.files(target)), TIMEOUT_S, "the first file")
            (java,) = children_named(process.pid, "java")
            os.kill(java, signal.SIGKILL)
            with Client(kafka_broker.bootstrap_servers) as client:
                client.produce(topic, 0, [b"later"])
            out, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        said = "Spark's Java process was killed by SIGKILL; files already published remain, and the next run continues"
        assert (process.returncode, out, errors) == (EXIT_FAILURE, "", f"kafkalite: {said} after them\n")
        status, _, errors = run(words_for(kafka_broker, topic, target), environment(tmp_path))
        assert (status, errors) == (0, "")
        assert sum(file.rows for file in load.files(target)) == 2001

    def test_a_full_disk(self, kafka_broker: Broker, topic: str, small_disk: Path, tmp_path: Path) -> None:
        done = run(words_for(kafka_broker, topic, small_disk / "loaded"), environment(tmp_path))
        status, out, errors = done
        assert (status, out) == (EXIT_FAILURE, ""), errors[-4000:]
        assert re.fullmatch("kafkalite: .*No space left on device.*\n", errors), errors


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB, where mounting is allowed."""
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no right to mount a tmpfs: {done.stderr.decode().strip()}")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def children_named(pid: int, name: str) -> list[int]:
    """Processes of that name that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(") ")
            except OSError:  # it is gone
                continue
            if command == name and int(rest.split()[1]) == pid:
                found.append(int(entry.name))
    return found
