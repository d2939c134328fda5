"""kcat -G: librdkafka 2.0.2's balanced consumer, with everything that Debian users have scripts for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.kcat.test_kcat import create, kcat, reach
from tests.kit.processes.broker import wait_until

__all__ = ["kcat"]

TIMEOUT_S = 30
SETTINGS = ("-X", "auto.offset.reset=earliest", "-X", "enable.auto.commit=true", "-X", "heartbeat.interval.ms=300")


@pytest.mark.capability("groups")
def test_group_reads_on_where_it_stopped(kcat: Callable[..., str], bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    kcat("-P", "-t", topic, text="".join(f"a{number}\n" for number in range(50)))
    settings = ["-q", "-e", *SETTINGS]
    first = kcat(*settings, "-G", f"group-{topic}", topic).split()
    assert sorted(first) == sorted(f"a{number}" for number in range(50))
    kcat("-P", "-t", topic, text="b1\nb2\nb3\n")
    assert sorted(kcat(*settings, "-G", f"group-{topic}", topic).split()) == ["b1", "b2", "b3"]


class Member:
    """A kcat that stays in a group until it is stopped; it says on standard error what it is assigned."""

    def __init__(self, bootstrap: str, topic: str, log: Path) -> None:
        self._log = log
        command = ["kcat", *reach(bootstrap), *SETTINGS, "-G", f"group-{topic}", topic]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    @property
    def assigned(self) -> int:
        """Partitions of the last rebalance."""
        told = re.findall(r"(assigned|revoked): (.*)", self._log.read_text())
        return len(told[-1][1].split(", ")) if told and told[-1][0] == "assigned" else 0

    def leave(self) -> None:
        self._process.terminate()
        assert self._process.wait(TIMEOUT_S) == 0


@pytest.mark.capability("groups")
def test_members_join_and_leave(kcat: Callable[..., str], bootstrap: str, topic: str, tmp_path: Path) -> None:
    create(bootstrap, topic, 3)
    kcat("-P", "-t", topic, text="one\n")
    first = Member(bootstrap, topic, tmp_path / "first")
    wait_until(lambda: first.assigned == 3, TIMEOUT_S, "all for the first")
    second = Member(bootstrap, topic, tmp_path / "second")
    wait_until(lambda: sorted([first.assigned, second.assigned]) == [1, 2], TIMEOUT_S, "some for each")
    first.leave()
    wait_until(lambda: second.assigned == 3, TIMEOUT_S, "all for the second")
    second.leave()
