"""The load programs of the other systems, each with its system: the number of records sent comes back.

A system that is not installed, or whose client library is missing, is skipped by name. RabbitMQ and ActiveMQ take long
to start, so their tests are slow ones.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.head_to_head import drivers
from benchmarks.head_to_head.plan import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.head_to_head.system import System

pytestmark = pytest.mark.integration

QUICK, SLOW = ("redis", "nats"), ("rabbitmq", "activemq")
COUNT = 1_010
SIZE = 200
RATE = 200
STILL_S = 100
"""How long a program waits for something to move: more than a busy machine makes it wait."""
PROGRAM_TIMEOUT_S = 250


@pytest.fixture(scope="module", params=[*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    kind = SYSTEMS[request.param]
    if reason := kind.missing():
        pytest.skip(f"{kind.name}: {reason}")
    found = kind(tmp_path_factory.mktemp(kind.name) / "system", synchronous=False)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def foreign(*names: str) -> list[Any]:
    """(system, driver) pairs of these systems."""
    return [(name, driver.name) for name in names for driver in drivers.TABLE if name in driver.systems]


def command(name: str) -> list[str]:
    try:
        return drivers.command(name)
    except drivers.Missing as missing:
        pytest.skip(str(missing))


def run(name: str, port: int, topic: str, *words: object) -> dict[str, Any]:
    where = [words[0], "--port", port, "--topic", topic, "--timeout", STILL_S, *words[1:]]
    arguments = [*command(name), *map(str, where)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def drivers_of(system: System) -> list[str]:
    """The programs that drive it and can run here; skips, by name, where there is none."""
    reasons, found = [], []
    for _, name in foreign(system.name):
        try:
            drivers.command(name)
            found.append(name)
        except drivers.Missing as missing:
            reasons.append(str(missing))
    if not found:
        pytest.skip("; ".join(reasons))
    return found


def test_what_is_sent_comes_back(system: System) -> None:
    for name in drivers_of(system):
        port = system.port_for(name)
        for ack in drivers.DRIVERS[name].acks:
            topic = f"{name}-{ack}".replace("-", "_")
            load = ["--messages", COUNT, "--size", SIZE, "--batch", 50, "--in-flight", 5, "--ack", ack]
            sent = run(name, port, topic, "produce", *load)
            assert (sent["driver"], sent["messages"], sent["bytes"]) == (name, COUNT, COUNT * SIZE)
            came = run(name, port, topic, "consume", "--messages", COUNT)
            assert (came["messages"], came["bytes"]) == (COUNT, COUNT * SIZE)
            assert came["progress"][-1][1] == COUNT


def test_latency_counts_each_message_once(system: System) -> None:
    for name in drivers_of(system):
        load = ["--rate", RATE, "--seconds", 1, "--warm-up", 0.2, "--size", SIZE]
        result = run(name, system.port_for(name), f"{name}_latency".replace("-", "_"), "latency", *load)
        assert sum(count for _, count in result["histogram_us"]) == result["messages"] == RATE


@pytest.mark.parametrize("name", [name for _, name in foreign(*QUICK, *SLOW) if drivers.DRIVERS[name].language == "C"])
def test_the_programs_in_c_compile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "BUILD", tmp_path)
    (program,) = command(name)
    done = subprocess.run([program, "devour"], capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
