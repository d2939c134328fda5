"""The load programs of the head to head: what they print is true, and what fails says so."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.head_to_head import drivers
from benchmarks.head_to_head.drivers.common import Confirms, bucket_end, bucket_of
from kafkalite.broker import Broker
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import free_port

pytestmark = pytest.mark.integration

COUNT = 3_050
SIZE = 200
PROGRAM_TIMEOUT_S = 120
CLASSIC = {"classic", "classic-c"}
HERE = ["kafka-c", "kafka-bare", "kafka-python-user", "classic", "classic-c"]
"""Those that talk to kafkalite."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0", "log.flush.interval": 1}
    with Broker(settings) as broker:
        yield broker


def command(name: str) -> list[str]:
    """Skips, by name, where the driver's library is not installed."""
    try:
        return drivers.command(name)
    except drivers.Missing as missing:
        pytest.skip(str(missing))


def run(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    arguments = [*command(name), *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0])
    return found


def port_of(broker: Broker, name: str) -> int:
    if name in CLASSIC:
        assert broker.classic_endpoint is not None
        return broker.classic_endpoint.port
    return broker.port


def check_progress(result: dict[str, Any], count: int) -> None:
    times, counts = zip(*result["progress"], strict=True)
    assert list(times) == sorted(times)
    assert list(counts) == sorted(counts)
    assert times[-1] <= result["seconds"]
    assert counts[-1] == count
    assert len(counts) <= 101


CASES = [
    *((name, batch, "none") for name in HERE for batch in (1, 50)),
    *((name, batch, ack) for name in HERE[:3] for batch, ack in ((1, "one"), (50, "one"), (50, "disk"))),
]


@pytest.mark.parametrize(("name", "batch", "ack"), sample(CASES, 4))
def test_messages_arrive_in_the_number_that_is_told(broker: Broker, name: str, batch: int, ack: str) -> None:
    topic = f"{name}-{batch}-{ack}"
    where = ["--port", port_of(broker, name), "--topic", topic, "--messages", COUNT]
    sent = result_of(run(name, "produce", *where, "--size", SIZE, "--batch", batch, "--in-flight", 5, "--ack", ack))
    assert (sent["driver"], sent["messages"], sent["bytes"]) == (name, COUNT, COUNT * SIZE)
    assert sent["cpu_s"] > 0
    check_progress(sent, COUNT)
    came = result_of(run(name, "consume", *where))
    assert (came["messages"], came["bytes"]) == (COUNT, COUNT * SIZE)
    check_progress(came, COUNT)
    log = broker.logs.topics[topic].partitions[0]
    assert log.log_end_offset == (COUNT * (SIZE + 10) if name in CLASSIC else COUNT)


@pytest.mark.parametrize("name", sample(HERE, 2))
def test_latency_counts_each_message_once(broker: Broker, name: str) -> None:
    rate, seconds, warm_up = 500, 1, 0.2
    done = run(
        name, "latency", "--port", port_of(broker, name), "--topic", f"latency-{name}",
        "--rate", rate, "--seconds", seconds, "--warm-up", warm_up, "--size", SIZE,
    )  # fmt: skip
    result = result_of(done)
    assert sum(count for _, count in result["histogram_us"]) == result["messages"] == rate * seconds
    bounds = [bound for bound, _ in result["histogram_us"]]
    assert bounds == sorted(set(bounds))
    assert 0 <= result["sent_late"] <= rate * seconds
    check_progress(result, rate * seconds)


@pytest.mark.parametrize("name", ["kafka-c", "kafka-bare", "classic"])
def test_a_message_that_never_comes_is_a_failure(broker: Broker, name: str) -> None:
    where = ["--port", port_of(broker, name), "--topic", f"short-{name}"]
    acks = ["--ack", next(iter(drivers.DRIVERS[name].acks))]
    result_of(run(name, "produce", *where, "--messages", 10, *acks))
    done = run(name, "consume", *where, "--messages", 11, "--timeout", 1)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"{name}: no progress for 1 s after 10 of 11 messages\n"


def test_messages_of_two_sizes_are_a_failure(broker: Broker) -> None:
    where = ["--port", broker.port, "--topic", "sizes"]
    for size in (100, 101):
        result_of(run("kafka-c", "produce", *where, "--messages", 5, "--size", size))
    done = run("kafka-c", "consume", *where, "--messages", 10)
    assert (done.returncode, done.stderr) == (1, "kafka-c: message 5 has 101 bytes, not 100\n")


@pytest.mark.parametrize("name", ["kafka-c", "kafka-bare", "classic-c"])
def test_no_broker_is_a_sentence(name: str) -> None:
    done = run(name, "consume", "--port", free_port(), "--topic", "t", "--messages", 1, "--timeout", 2)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["kafka-bare", "classic-c"])
def test_a_broker_that_falls_silent_is_a_sentence(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = run(name, "consume", "--port", port, "--topic", "t", "--messages", 1, "--timeout", 1)
    assert (done.returncode, done.stderr) == (1, f"{name}: no progress for 1 s after 0 of 1 messages\n")


def test_a_batch_that_is_refused_is_a_failure(broker: Broker) -> None:
    size = broker.config.message_max_bytes
    where = ["--port", broker.port, "--topic", "refused"]
    done = run("kafka-bare", "produce", *where, "--messages", 1, "--size", size)
    assert (done.returncode, done.stderr) == (1, "kafka-bare: the broker took no batch: error 10\n")


@pytest.mark.parametrize("name", ["kafka-c", "classic"])
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["devour"],
        ["produce", "--port", 1, "--topic", "t"],
        ["produce", "--port", 1, "--topic", "t", "--messages", "many"],
        ["produce", "--port", 1, "--topic", "t", "--messages", 1, "--ack", "perhaps"],
        ["consume", "--topic", "t", "--messages", 1],
        ["consume", "--port", 1, "--topic", "t", "--messages", 1, "more"],
        ["consume", "--port", 1, "--topic", "t", "--messages", 1, "--colour", "red"],
        ["latency", "--port", 1, "--topic", "t", "--rate", 10],
        ["latency", "--port", 1, "--topic", "t", "--rate", 10, "--seconds", 1, "--size", 8],
    ],
)
def test_a_senseless_command_line_is_status_2(name: str, words: list[object]) -> None:
    done = run(name, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("name", ["classic", "classic-c"])
def test_an_acknowledgement_that_is_not_to_be_had_is_refused(name: str) -> None:
    done = run(name, "produce", "--port", 1, "--topic", "t", "--messages", 1, "--ack", "one")
    assert (done.returncode, done.stderr) == (2, f"{name}: this system does not support --ack one\n")


HISTOGRAM_C = """
#include "driver.h"
int main(void) {
    unsigned long long value;
    while (scanf("%llu", &value) == 1) printf("%d %.0f\\n", bucket_of(value), bucket_end(bucket_of(value)));
}
"""


class TestHistogram:
    VALUES = sorted(
        {0, 1, 127, 128, 255, 256, 257, 511, 512, 1_000, 999_999, 1_000_000, 123_456_789, 2**40 - 1, 2**40}
        | {random.Random(1).randrange(2**shift) for shift in range(1, 60)}
    )

    @pytest.mark.parametrize(
        ("value", "end"),
        [(0, 1), (127, 128), (255, 256), (256, 258), (257, 258), (1_000, 1_004), (1_000_000, 1_003_520)],
    )
    def test_known_buckets(self, value: int, end: int) -> None:
        assert bucket_end(bucket_of(value)) == end

    def test_buckets_are_narrow_and_adjoin(self) -> None:
        for value in self.VALUES:
            bucket = bucket_of(value)
            begin, end = (bucket_end(bucket - 1) if bucket else 0), bucket_end(bucket)
            assert begin <= value < end
            assert end - begin <= max(1, begin / 128)
            assert bucket_of(end) == bucket + 1

    def test_both_languages_agree(self, tmp_path: Path) -> None:
        if shutil.which("gcc") is None:
            pytest.skip("gcc is needed to build the C programs")
        source, program = tmp_path / "histogram.c", tmp_path / "histogram"
        source.write_text(HISTOGRAM_C)
        subprocess.run(
            ["gcc", *drivers.C_FLAGS, "-Werror", "-Wno-unused-function", "-I", str(drivers.HERE), "-o", str(program),
             str(source), "-lm", "-lpthread"], check=True,
        )  # fmt: skip
        text = "\n".join(map(str, self.VALUES))
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        assert found == [(bucket_of(value), bucket_end(bucket_of(value))) for value in self.VALUES]


@pytest.mark.parametrize(
    ("confirms", "count"),
    [
        ([(1, False), (2, False)], 2),
        ([(3, True)], 3),
        ([(3, False), (1, False)], 2),
        ([(3, False), (1, False), (2, False)], 3),
        ([(2, False), (3, False), (4, True)], 4),
        ([(5, False), (3, True)], 4),
        ([(5, False), (3, True), (4, False), (6, True)], 6),
        ([(3, True), (2, False), (3, True)], 3),
    ],
)
def test_confirms_count_each_message_once_in_any_order(confirms: list[tuple[int, bool]], count: int) -> None:
    counted = Confirms()
    for tag, multiple in confirms:
        counted.add(tag, multiple=multiple)
    assert counted.count == count


class TestCommand:
    def test_unknown_names_are_key_errors(self) -> None:
        with pytest.raises(KeyError):
            drivers.command("zeromq-c")

    def test_a_missing_library_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        source = tmp_path / "absent.c"
        source.write_text("#include <no_such_library.h>\n")
        absent = replace(drivers.DRIVERS["kafka-c"], name="absent-c", source=str(source), package="libabsent-dev")
        monkeypatch.setattr(drivers, "DRIVERS", {"absent-c": absent})
        if shutil.which("gcc") is None:
            pytest.skip("gcc is needed to build the C programs")
        with pytest.raises(drivers.Missing, match="absent-c needs the package libabsent-dev"):
            drivers.command("absent-c")

    def test_a_missing_module_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        absent = replace(drivers.DRIVERS["classic"], package="absent-client", libraries=("no_such_module",))
        monkeypatch.setattr(drivers, "DRIVERS", {"absent": absent})
        with pytest.raises(drivers.Missing, match="classic needs the Python package absent-client"):
            drivers.command("absent")

    @pytest.mark.parametrize("name", drivers.DRIVERS)
    def test_every_driver_is_described(self, name: str) -> None:
        driver = drivers.DRIVERS[name]
        assert (drivers.HERE / driver.source).exists()
        assert driver.systems
        assert set(driver.acks) <= {"none", "one", "disk"}
        assert driver.acks
