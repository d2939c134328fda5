"""The broker of the fixture next to the tools that people test with: each runs a pytest session in which it has effect.

`make test` installs them outside of the environment of these tests, since some change every run that finds them.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kit.harness.other_tools import FOLDER, ROOT, needs_tools

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, needs_tools]

CONFTEST = '''
import os
import pathlib

import confluent_kafka
import pytest

PORTS = pathlib.Path(__file__).parent / "ports"
RECENT_MS = 1_600_000_000_000  # tests that fake time are before this


def exchange(broker, topic, restart=True):
    """Use the broker: control, a fault, a crash, and a record that it dates."""
    broker.create_topic(topic, message_timestamp_type="LogAppendTime")
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    errors = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    assert fault.count == 1
    if restart:
        broker.restart(kill=True)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    assert message is not None and message.error() is None and message.value() == b"x"
    assert message.timestamp()[1] > RECENT_MS
    consumer.close()


@pytest.fixture(scope="session")
def broker(kafka_broker):
    with PORTS.open("a") as ports:
        ports.write(f"{kafka_broker.port}\\n")
    yield kafka_broker
'''


class Case(NamedTuple):
    """A tool's session: what it runs, and what comes of it with the broker in its own process and in pytest's."""

    tests: str
    outcomes: dict[str, int]
    arguments: tuple[str, ...] = ()
    brokers: int = 1
    conftest: str = ""
    line: str = "*passed*"
    in_process: dict[str, int] | None = None
    in_process_line: str = "*passed*"


CASES = {
    "freezegun": Case(
        """
import time
import freezegun
from conftest import RECENT_MS, exchange
from kafkalite.base.clock import SystemClock

def test_frozen(broker):
    with freezegun.freeze_time("2001-01-01"):
        assert time.time() * 1000 < RECENT_MS < SystemClock().time_ms()
        assert time.monotonic() == time.monotonic() != SystemClock().monotonic()
        exchange(broker, "frozen")
""",
        {"passed": 1},
    ),
    "time-machine": Case(
        """
import time
import time_machine
from conftest import RECENT_MS, exchange
from kafkalite.base.clock import SystemClock

def test_travel(broker):
    with time_machine.travel("2001-01-01 00:00 +0000", tick=False):
        assert time.time() * 1000 < RECENT_MS < SystemClock().time_ms()
        exchange(broker, "travel")
""",
        {"passed": 1},
    ),
    "pyfakefs": Case(
        """
import os
from conftest import exchange

def test_fake(broker, fs):
    assert not os.path.exists("/proc/self")
    exchange(broker, "fake")
    assert not os.path.exists("/proc/self")
""",
        {"passed": 1},
    ),
    "pytest-socket": Case(
        """
import socket
import pytest
import pytest_socket
from conftest import exchange

def test_blocked(broker):
    with pytest.raises(pytest_socket.SocketBlockedError):
        socket.socket()
    exchange(broker, "blocked")
""",
        {"passed": 1},
        ("--disable-socket",),
        in_process={"errors": 1},
        in_process_line="*StartupError: pytest_socket has replaced socket.socket, *its own process*",
    ),
    "gevent": Case(
        """
import gevent
from gevent import monkey
from conftest import exchange

def test_patched(broker):
    assert monkey.is_module_patched("socket")
    assert monkey.is_module_patched("threading")
    exchange(broker, "patched")
    asks = [gevent.spawn(lambda: broker.port) for _ in range(3)]
    gevent.joinall(asks, timeout=60)
    assert [ask.value for ask in asks] == [broker.port] * 3
""",
        {"passed": 1},
        in_process={"errors": 1},
        in_process_line="*StartupError: gevent has replaced socket.socket, *its own process*",
        conftest="from gevent import monkey\nmonkey.patch_all()\n",
    ),
    "pytest-xdist": Case(
        """
from conftest import exchange

def test_worker(broker, worker_id):
    assert worker_id in {"gw0", "gw1"}
    exchange(broker, "worker")
""",
        {"passed": 2},
        ("-n", "2", "--dist", "each"),
        brokers=2,
    ),
    "pytest-timeout": Case(
        """
import time
import pytest
from conftest import exchange

@pytest.mark.timeout(1, method="signal", func_only=True)
def test_hangs(broker):
    while True:
        broker.failed.wait(600)

def test_next(broker):
    exchange(broker, "next")
""",
        {"passed": 1, "failed": 1},
        line="*Failed: Timeout*",
    ),
    "pytest-randomly": Case(
        """
from conftest import exchange

def test_first(broker, kafka_topic_factory):
    assert kafka_topic_factory() != kafka_topic_factory()
    exchange(broker, "first")

def test_second(broker):
    exchange(broker, "second")
""",
        {"passed": 2},
        ("--randomly-seed=7",),
        line="Using --randomly-seed=7",
    ),
    "pytest-forked": Case(
        """
import os
import pytest
from conftest import exchange

PARENT = os.getpid()

@pytest.mark.forked
def test_forked_before(broker):
    assert os.getpid() != PARENT
    exchange(broker, "its-own")

def test_parent(broker):
    exchange(broker, "parent")

@pytest.mark.forked
def test_forked_after(broker):
    assert os.getpid() != PARENT
    exchange(broker, "forked", restart=False)
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)

def test_parent_again(broker):
    exchange(broker, "again")
""",
        {"passed": 4},
        in_process={"passed": 3, "failed": 1},
        in_process_line="*RuntimeError: this broker belongs to process *",
        brokers=2,
    ),
    "multiprocessing": Case(
        """
import multiprocessing
import pytest
from conftest import exchange
import confluent_kafka

def produce(servers, topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0

def control(broker):
    broker.create_topic("of-a-child")
    broker.stop()

@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes(broker, kafka_topic, method):
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=produce, args=(broker.bootstrap_servers, kafka_topic)) for _ in range(2)]
    workers += [context.Process(target=control, args=(broker,))] * (method == "fork")
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert {worker.exitcode for worker in workers} == {0}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(kafka_topic, 0)) == (0, 2)
    consumer.close()
    exchange(broker, method)
""",
        {"passed": 3},
        in_process={"passed": 2, "failed": 1},
        in_process_line="*RuntimeError: this broker belongs to process *",
    ),
}


@pytest.mark.parametrize("place", ["own-process", "in-process"])
@pytest.mark.parametrize("tool", CASES)
def test_the_broker_serves_next_to_a_tool(
    tool: str, place: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[tool]
    monkeypatch.setenv("PYTHONPATH", f"{FOLDER}:{ROOT}")
    here = place == "in-process"
    pytester.makeini(
        "[pytest]\naddopts = -p kafkalite.testing -p no:cacheprovider\n"
        + "kafkalite_settings = in_process=true\n" * here
    )
    pytester.makeconftest(case.conftest + CONFTEST)
    pytester.makepyfile(case.tests)
    arguments = case.arguments if tool == "pytest-randomly" else ("-p", "no:randomly", *case.arguments)
    result = pytester.runpytest_subprocess(*arguments)
    outcomes, line = case.outcomes, case.line
    if here and case.in_process is not None:
        outcomes, line = case.in_process, case.in_process_line
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])
    ports = ports_of(pytester.path)
    assert len(ports) == (0 if "errors" in outcomes else case.brokers)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_the_page_has_these_tools() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    rows = page.partition("| Tool |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [name.strip() for row in rows for name in row.split("|")[1].split(",")]
    assert sorted(named) == sorted(CASES)


def ports_of(folder: Path) -> set[int]:
    """The ports of the session's brokers."""
    file = folder / "ports"
    return {int(port) for port in file.read_text().split()} if file.exists() else set()
