"""Members of the Java client and of kafkalite.client in one group, each leading it in turn."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client import Client, GroupReader
from tests.compat.addresses import security_at
from tests.compat.java.test_java import BUILD, java  # noqa: F401  # the fixture builds the program
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until

PARTITION_COUNT = 6
TIMEOUT_S = 180
STRATEGIES = [("range", "RangeAssignor"), ("cooperative-sticky", "CooperativeStickyAssignor")]


@pytest.fixture
def member(bootstrap: str, topic: str) -> Iterator[Callable[..., GroupReader]]:
    """`member(assignor)`: ours, in the group of the topic's name."""
    made: list[Any] = []
    with Client(bootstrap, security=security_at(bootstrap)) as client:
        client.admin.create_topic(topic, PARTITION_COUNT)

    def make(assignor: str) -> GroupReader:
        client = Client(bootstrap, security=security_at(bootstrap))
        made.append(client)
        reader = client.group_reader(f"group-{topic}", topic, assignors=[assignor], heartbeat_interval_s=0.3)
        made.append(reader)
        return reader

    yield make
    for each in reversed(made):
        each.close()


class JavaMember:
    """The check "member" of CompatClient, in a process."""

    def __init__(self, bootstrap: str, topic: str, assignor: str, directory: Path) -> None:
        self.out = directory / "java"
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{BUILD}/lib/*:{BUILD}"]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "CompatClient", bootstrap, "member", topic, assignor],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def owned(self) -> list[int]:
        """As it said last."""
        said = [line for line in self.out.read_text().splitlines() if line.startswith("owns")]
        assert self.process.poll() is None, self.out.read_text()
        return [int(word) for word in said[-1].split()[1:]] if said else []

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"x")
        self.process.stdin.close()
        self.process.wait(TIMEOUT_S)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(("ours", "theirs"), sample(STRATEGIES, 1), ids=[name for name, _ in STRATEGIES])
def test_one_group(
    bootstrap: str, topic: str, member: Callable[..., GroupReader], tmp_path: Path, ours: str, theirs: str
) -> None:
    def shared(share: int, other: JavaMember | None, *readers: GroupReader) -> bool:
        for reader in readers:
            reader.poll(0.05)
        owned = [[key.partition for key in reader.assignment] for reader in readers]
        owned += [other.owned()] if other is not None else []
        every = sorted(number for numbers in owned for number in numbers)
        return every == list(range(PARTITION_COUNT)) and all(len(numbers) == share for numbers in owned)

    first = member(ours)
    wait_until(lambda: shared(6, None, first), TIMEOUT_S, "ours alone")
    java_member = JavaMember(bootstrap, topic, theirs, tmp_path)
    try:
        wait_until(lambda: shared(3, java_member, first), TIMEOUT_S, "two, led by ours")
        first.close()
        wait_until(lambda: shared(6, java_member), TIMEOUT_S, "theirs alone")
        second, third = member(ours), member(ours)
        wait_until(lambda: shared(2, java_member, second, third), TIMEOUT_S, "three, led by theirs")
    finally:
        java_member.close()
    wait_until(lambda: shared(3, None, second, third), TIMEOUT_S, "two of ours")
