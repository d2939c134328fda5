"""E8: the peer is gone without a word (its link is taken down). Its connection and its group member end in time.

The client runs in a separate network namespace, joined to the broker's by a pair of virtual interfaces. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
GROUP = "half-open"
IDLE_MS = 3000
SESSION_MS = 2000

# Sits in a network namespace: one silent connection and one member of a group, until its standard input ends.
CLIENT = f"""
import socket, sys, threading
from confluent_kafka import Consumer
host, port = sys.argv[1], int(sys.argv[2])
idle = socket.create_connection((host, port), 10)
consumer = Consumer({{"bootstrap.servers": f"{{host}}:{{port}}", "group.id": "{GROUP}",
                     "session.timeout.ms": {SESSION_MS}, "heartbeat.interval.ms": 200}})
consumer.subscribe(["t"])
ending = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
told = False
while not ending.is_set():
    consumer.poll(0.1)
    if consumer.assignment() and not told:
        print("ready", flush=True)
        told = True
"""


@dataclass
class Namespace:
    """A namespace whose link to ours can be taken down."""

    name: str
    link: str
    host: str

    def run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def down(self) -> None:
        self.run("ip", "netns", "exec", self.name, "ip", "link", "set", "peer0", "down")

    def up(self) -> None:
        self.run("ip", "netns", "exec", self.name, "ip", "link", "set", "peer0", "up")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if os.geteuid() != 0:
        pytest.skip("making a network namespace needs root")
    if shutil.which("ip") is None:
        pytest.skip("`ip` is not installed (package iproute2)")
    number = os.getpid() % 16384
    subnet = f"10.{200 + number // 4096}.{number // 16 % 256}.{number % 16 * 16}"
    ours, theirs = (subnet.rsplit(".", 1)[0] + f".{number % 16 * 16 + host}" for host in (1, 2))
    found = Namespace(f"klt{number}", f"klt{number}", ours)
    try:
        found.run("ip", "netns", "add", found.name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.decode().strip()}")
    try:
        found.run("ip", "link", "add", found.link, "type", "veth", "peer", "name", "peer0", "netns", found.name)
        found.run("ip", "addr", "add", f"{ours}/28", "dev", found.link)
        found.run("ip", "link", "set", found.link, "up")
        found.run("ip", "netns", "exec", found.name, "ip", "addr", "add", f"{theirs}/28", "dev", "peer0")
        found.up()
        yield found
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            found.run("ip", "link", "del", found.link)
        found.run("ip", "netns", "del", found.name)


@pytest.mark.parametrize("turn_count", [1, slow(10)])
@pytest.mark.scenario("E8")
def test_peer_that_vanished(make_broker: MakeBroker, namespace: Namespace, turn_count: int) -> None:
    port, local = free_port(), free_port()
    settings = {
        "listeners": f"kafka://{namespace.host}:{port},LOCAL://127.0.0.1:{local}",
        "listener.security.protocol.map": "LOCAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "connections.max.idle.ms": str(IDLE_MS),
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    broker = make_broker(settings=settings, port=local).start()
    with TypedConnection(local) as connection:
        assert connection.create_topic("t") == 0
    for _ in range(turn_count):
        with client_in(namespace, port, broker.directory):
            assert connections_of(port) >= 2
            assert member_count(local) == 1
            namespace.down()
            wait_until(lambda: member_count(local) == 0, SESSION_MS / 1000 + 20, "the vanished member's end")
            wait_until(lambda: connections_of(port) == 0, IDLE_MS / 1000 + 20, "the end of half-open connections")
            namespace.up()
    assert "Traceback" not in broker.log()


@contextlib.contextmanager
def client_in(namespace: Namespace, port: int, directory: Path) -> Iterator[None]:
    """The client in its namespace, a member of its group; killed at the end."""
    command = ["ip", "netns", "exec", namespace.name, sys.executable, "-c", CLIENT, namespace.host, str(port)]
    with (directory / "client.log").open("ab") as log:
        client = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n", (directory / "client.log").read_text()
        yield
    finally:
        client.kill()
        client.communicate()


def member_count(port: int) -> int:
    with TypedConnection(port) as connection:
        answer = connection.ask(api.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[GROUP]))
    return len(answer.groups[0].members)


def connections_of(port: int) -> int:
    """Established connections to a local port, by /proc/net/tcp."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        count += fields[3] == "01" and int(fields[1].rsplit(":", 1)[1], 16) == port
    return count
