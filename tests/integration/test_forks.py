"""A forked process never stops, flushes or answers for its parent's broker or client, and keeps nothing of it open."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite import Broker
from kafkalite.client import Client
from kafkalite.client.errors import ForeignProcess
from kafkalite.testing import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 60.0


def in_child(act: Callable[[], object]) -> str:
    """What `act` returns in a forked child, as text, or the exception it raises; the child runs no clean-up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                told = str(act())
            except BaseException as error:  # noqa: BLE001  # told to the parent
                told = f"{type(error).__name__}: {error}"
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return told


def links() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sorted(found)


def test_a_child_that_leaves_the_with_block_stops_nothing(tmp_path: Path) -> None:
    with Broker(log_dirs=str(tmp_path)) as broker:
        broker.create_topic("orders")

        def leave() -> object:
            broker.__exit__(None, None, None)
            broker.stop()
            return broker.running

        assert in_child(leave) == "False"
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        with Client(broker.bootstrap_servers) as client, client.producer() as producer:
            producer.send("orders", 0, [b"one"])
            producer.flush()
            assert client.end_offset("orders", 0) == 1
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    "use",
    [
        lambda broker: broker.start(),
        lambda broker: broker.logs,
        lambda broker: broker.create_topic("t"),
        lambda broker: broker.delete_topic("orders"),
        lambda broker: broker.restart(),
        lambda broker: broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER"),
        lambda broker: broker.disconnect("Produce"),
        lambda broker: broker.delay("Produce", 1.0),
        lambda broker: broker.heal(),
        lambda broker: broker.reload_certificates(),
        lambda broker: broker.loops_turned(),
        lambda broker: broker.add_user("u", "p"),
    ],
    ids=[
        *("start", "logs", "create", "delete", "restart", "fail"),
        *("disconnect", "delay", "heal", "reload", "turned", "user"),
    ],
)
def test_what_would_change_the_broker_is_refused_in_a_child(use: Callable[[KafkaBroker], object]) -> None:
    with KafkaBroker(in_process=True) as broker:
        told = in_child(lambda: use(broker))
        assert told.startswith(f"RuntimeError: this broker belongs to process {os.getpid()}"), told


def test_a_child_has_no_descriptor_of_its_parents_broker_and_clients(tmp_path: Path) -> None:
    before = in_child(links).count("/dev/null")
    outside = links()
    with (
        Broker(log_dirs=str(tmp_path), metrics_listeners="http://127.0.0.1:0") as broker,
        Client(broker.bootstrap_servers) as client,
        socket.create_connection(("127.0.0.1", broker.port)),  # this one is the test's, and stays
    ):
        broker.create_topic("orders", 3)
        client.topics()
        reader = client.group_reader("g", ["orders"], reset="earliest")
        reader.poll(0.1)
        inside = in_child(lambda: "\n".join(links())).splitlines()
        reader.close()
    kept = [link for link in inside if link != "/dev/null"]
    new = [link for link in kept if link not in outside and not link.startswith("pipe:")]
    assert [link for link in new if not link.startswith("socket:")] == []
    assert len([link for link in new if link.startswith("socket:")]) == 1
    assert inside.count("/dev/null") > before + 10


def test_a_child_that_outlives_its_parent_holds_neither_lock_nor_port(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, sys, time
        from kafkalite import Broker
        broker = Broker(log_dirs=sys.argv[1], metrics_listeners="http://127.0.0.1:0").start()
        broker.create_topic("orders")
        port = broker.port
        if os.fork() == 0:  # it says so itself, when it has given up what it inherited
            print(port, os.getpid(), flush=True)
            time.sleep(600)
            os._exit(0)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    child = 0
    try:
        port, child = map(int, parent.stdout.readline().split())
        parent.kill()
        parent.wait(WAIT_S)
        os.kill(child, 0)  # it lives
        with Broker(log_dirs=str(tmp_path), listeners=f"kafka://127.0.0.1:{port}") as broker:
            assert broker.running
            assert not broker.logs.clean_start
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.stdout.close()


def test_clients_are_refused_in_a_child_and_closing_them_tells_no_broker(tmp_path: Path) -> None:
    with Broker(log_dirs=str(tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders")
        producer = client.producer()
        producer.send("orders", 0, [b"one"])
        producer.flush()
        reader = client.group_reader("g", ["orders"], reset="earliest")
        while not reader.poll(1.0):
            pass

        def close_all() -> object:
            producer.send("orders", 0, [b"two"])
            producer.__exit__(None)
            reader.close()
            client.close()
            return "closed"

        def ask() -> object:
            return client.topics()

        def poll() -> object:
            return reader.poll(1.0)

        assert in_child(ask).startswith(f"{ForeignProcess.__name__}: this client belongs to process")
        assert in_child(poll).startswith(f"{ForeignProcess.__name__}: this reader belongs to process")
        assert in_child(close_all).startswith(("closed", ForeignProcess.__name__))
        producer.send("orders", 0, [b"three"])
        producer.flush()
        assert client.end_offset("orders", 0) == 2
        assert len(client.groups.describe("g").members) == 1
        chunks = reader.poll(5.0)
        assert [bytes(record.value or b"") for chunk in chunks for record in chunk.records()] == [b"three"]
        reader.close()
        producer.close()


def _serve_in_child(servers: str, topic: str) -> None:
    with Client(servers) as client, client.producer() as producer:
        producer.send(topic, 0, [b"from a child"])


def test_multiprocessing_by_fork_uses_the_parents_broker_as_a_client() -> None:
    context = multiprocessing.get_context("fork")
    with Broker() as broker:
        broker.create_topic("orders")
        workers = [context.Process(target=_serve_in_child, args=(broker.bootstrap_servers, "orders")) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(WAIT_S)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        with Client(broker.bootstrap_servers) as client:
            assert client.end_offset("orders", 0) == 3


def test_a_daemon_that_forks_twice_keeps_nothing_and_ends_by_itself(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with Broker(log_dirs=str(tmp_path / "data")) as broker:
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                told.write_text("\n".join(links()))
                broker.stop()
                told.rename(tmp_path / "done")
            os._exit(0)
        os.waitpid(child, 0)
        until = time.monotonic() + WAIT_S
        while not (tmp_path / "done").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert str(tmp_path / "data") not in (tmp_path / "done").read_text()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        assert broker.running
