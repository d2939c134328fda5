"""Client programs that run until they are stopped: group members that report the records they take, and writers.

    took PARTITION OFFSET…    a member has these in its hands, and commits them then
    wrote NUMBER              a record was acknowledged
    delivered                 a record was acknowledged, and only the program's end names it (kcat)

All of them are `PROGRAM host:port CHECK topic argument`. They stop when a byte comes in, and end with 0 if nothing
failed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.compat import node_checks, toolchains
from tests.compat.java import test_java

JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
END_S = 120


class Taken:
    """Offsets of each partition that some member had in its hands."""

    def __init__(self) -> None:
        self.offsets: dict[int, set[int]] = defaultdict(set)
        self._last: dict[int, float] = {}
        self.longest_s = 0.0
        """The longest time between two reads of a partition, by any member."""

    def add(self, partition: int, offsets: Iterable[int]) -> None:
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._last.get(partition, now))
        self._last[partition] = now
        self.offsets[partition].update(offsets)

    def line(self, text: str) -> None:
        words = text.split()
        if words and words[0] == "took":
            self.add(int(words[1]), map(int, words[2:]))

    def read_on(self, partitions: Iterable[int]) -> Callable[[], bool]:
        """Whether each of these partitions is read beyond where it is read now."""
        before = {number: max(self.offsets[number], default=-1) for number in partitions}
        return lambda: all(max(self.offsets[number], default=-1) > at for number, at in before.items())


class Written:
    """Numbers of records that were acknowledged."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self._count = 0

    def line(self, text: str) -> None:
        words = text.split()
        self._count += bool(words) and words[0] in {"wrote", "delivered"}
        if words and words[0] == "wrote":
            self.numbers.add(int(words[1]))

    def written_on(self, count: int) -> Callable[[], bool]:
        """Return a condition: `count` more records are acknowledged than now."""
        before = self._count
        return lambda: self._count >= before + count


class Program:
    """One of them, whose lines go to `told`."""

    def __init__(self, command: list[str], told: Callable[[str], object], errors: Path) -> None:
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        self._command = command
        self._errors = errors
        self._reader = threading.Thread(target=self._read, args=(told,), daemon=True)
        self._reader.start()

    def _read(self, told: Callable[[str], object]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                told(line)

    def said(self) -> str:
        """The end of what it had to say of faults."""
        return f"{self._command[-4:]}: {self._errors.read_text()[-3000:]}"

    def check(self) -> None:
        """Assert that the program still runs."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said()}"

    def close(self) -> None:
        """Tells it to stop, and waits until it has, with 0."""
        assert self.process.stdin is not None
        self.check()
        self.process.stdin.write("x")
        self.process.stdin.close()
        assert self.process.wait(END_S) == 0, self.said()
        self._reader.join(END_S)

    def kill(self) -> None:
        """Kill the program in any state."""
        self.process.kill()
        self.process.wait()


def java() -> list[str]:
    test_java.build()
    return ["java", *JAVA_OPTIONS, "-cp", f"{test_java.BUILD}/lib/*:{test_java.BUILD}", "CompatClient"]


def go(folder: str) -> list[str]:
    return [str(toolchains.build_go(folder))]


def node(folder: str, package: str, found: Callable[[], str]) -> list[str]:
    return [found(), str(node_checks.installed(folder, package))]


def python(client: str) -> list[str]:
    return [sys.executable, "-m", "tests.compat.python_members", client]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "confluent": lambda: python("confluent"),
    "kafka_python": lambda: python("kafka_python"),
    "aiokafka": lambda: python("aiokafka"),
    "kcat": lambda: python("kcat"),
    "java": java,
    "kafkajs": lambda: node("kafkajs", "kafkajs", toolchains.any_node),
    "platformatic": lambda: node("platformatic", "@platformatic/kafka", toolchains.node),
    "franz_go": lambda: go("franz_go"),
    "sarama": lambda: go("sarama"),
}
"""Folder of a client → how its program begins, which is built where it is not; NotAvailable, CalledProcessError."""
