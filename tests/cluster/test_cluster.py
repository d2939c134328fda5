"""Campaigns, links, and a short series on three brokers of Apache Kafka's, in which nothing may be found."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import campaign, links, plan
from tests.cluster.campaign import Series
from tests.cluster.faults import EXCHANGES, FAULTS, draw
from tests.cluster.pauses import Pauses
from tests.kit.processes.broker import REPOSITORY

needs_network = pytest.mark.skipif(bool(links.missing()), reason=links.missing() or "there is one")


def never() -> bool:
    return False


def test_a_campaign_continues_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def series(number: int, brokers: str, *_: Any, **__: Any) -> Series:
        done.append(number)
        return Series(number, brokers, faults=4, acknowledged=3000, transactions=20, aborted=5, commits=30)

    monkeypatch.setattr(campaign, "run_series", series)
    rows_file = tmp_path / "rows"
    network: Any = None
    campaign.run(4, "java", rows_file, network, print, never)
    rows = campaign.run(10, "java", rows_file, network, print, never)
    assert done == [0, 1, 2]
    assert [json.loads(line) for line in rows_file.read_text().splitlines()] == rows
    campaign.run(100, "java", rows_file, network, print, lambda: True)
    assert done == [0, 1, 2]
    counts = {"faults": 12, "acknowledged": 9000, "transactions": 60, "aborted": 15, "commits": 90}
    assert campaign.summary("java", rows) == {"brokers": "java", **counts, "renumbered": 0, "findings": 0}


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = draw(random.Random(1))
    assert set(drawn) == FAULTS.keys() - {*EXCHANGES}
    mixed = draw(random.Random(1), exchanges=True)
    assert (set(mixed[::2]), mixed[1::2]) == ({*EXCHANGES}, drawn)


def test_pauses_are_those_that_end_in_a_stretch() -> None:
    pauses = Pauses()

    def acknowledged(at: float, *places: int) -> None:
        pauses.take({"event": "acknowledged", "producer": 1, "records": [[place, 0, 0] for place in places]}, at)

    acknowledged(1.0, 0, 1)
    acknowledged(5.0, 0)
    pauses.begin()
    acknowledged(6.0, 0)
    pauses.take({"event": "ended", "producer": 1, "transaction": 0, "outcome": "aborted"}, 6.0)
    pauses.take({"event": "committed", "group": plan.burst(3), "at": 6.0, "positions": {}}, 6.0)
    acknowledged(6.5, 0)
    assert pauses.end(7.5) == {"commits of bursts": 1.5, "plain-0": 1.0, "plain-1": 6.5}


def test_unknown_kinds_are_refused() -> None:
    done = run("--kinds", "kill,earthquake")
    assert done.returncode == 2
    assert "earthquake: there are kill, " in done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process: it leaves this network."""
    command = [sys.executable, "-m", "tests.cluster", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


LINKS = """
import subprocess, sys
from tests.cluster.links import ALL, Links, address
from tests.kit.processes.broker import wait_until

SERVE = '''
import socket
server = socket.create_server(("", 9092))
print(flush=True)
while True:
    server.accept()[0].sendall(b"x")
'''
ASK = '''
import socket, sys
with socket.create_connection((sys.argv[1], 9092), 2) as asking:
    assert asking.recv(1) == b"x"
'''
network = Links()
for number in (1, 2, 3):
    network.join(number)
for number in (1, 2):
    server = subprocess.Popen([*network.prefix(number), sys.executable, "-c", SERVE], stdout=subprocess.PIPE)
    server.stdout.readline()

def reached():
    found = []
    for source, target in ((1, 2), (2, 1), (3, 1), (3, 2)):
        ask = [*network.prefix(source), sys.executable, "-c", ASK, address(target)]
        if not subprocess.run(ask, stderr=subprocess.DEVNULL).returncode:
            found.append((source, target))
    return found

everybody = [(1, 2), (2, 1), (3, 1), (3, 2)]
assert reached() == everybody
network.cut(1, 2)  # a way is enough to keep both from talking
assert reached() == [(3, 1), (3, 2)]
network.mend()
network.cut(ALL, 1)
assert reached() == [(3, 2)]
network.mend()
network.down(2)
assert reached() == [(3, 1)]
network.mend()
wait_until(lambda: reached() == everybody, 60, "a link that is up again")  # the carrier takes a moment
network.close()
"""


@needs_network
@pytest.mark.integration
def test_links_are_cut_and_mended() -> None:
    done = subprocess.run([sys.executable, "-c", LINKS], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_network
@pytest.mark.slow
def test_nothing_is_found_in_a_cluster_of_apache_kafkas(kafka_jars: Path) -> None:
    assert kafka_jars
    done = run("--brokers", "java", "--kinds", "kill,alone,pause,stop,controller killed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults=5" in done.stdout


@needs_network
@pytest.mark.slow
def test_brokers_continue_with_the_next_of_three_controllers(kafka_jars: Path) -> None:
    assert kafka_jars
    kinds = "controller killed,controller paused,controller cut,kill"
    done = run("--brokers", "kafkalite", "--controllers", "3", "--kinds", kinds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults=4" in done.stdout


@needs_network
@pytest.mark.slow
def test_broker_of_apache_kafkas_becomes_kafkalite_in_its_directory_and_goes_back(kafka_jars: Path) -> None:
    """Each of three once, then the first one back: clients find everything, and replicas are equal."""
    assert kafka_jars
    done = run("--brokers", "exchanged", "--kinds", "exchange,exchange,exchange,exchange")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults=4" in done.stdout
    assert "broker 3, kafkalite from now on" in done.stdout
    assert done.stdout.count("broker 1, java from now on") == 1 + 1  # told as it happens, and with its pauses


@needs_network
@pytest.mark.slow
def test_brokers_of_an_older_commit_are_upgraded_one_by_one_and_rolled_back(kafka_jars: Path) -> None:
    assert kafka_jars
    done = run("--brokers", "upgraded", "--exchange")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults=6" in done.stdout
    assert "broker 3, kafkalite from now on" in done.stdout
    assert "broker 3, older from now on" in done.stdout


@needs_network
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cheat", "kinds", "finding"),
    [
        ("early-answers", "island,island,island", "lost: plain"),
        ("early-commits", "island,island,island", "went back: bursts"),
        ("forgotten-epochs", "stop", "epochs: after stop"),
    ],
)
def test_planted_fault_is_found(kafka_jars: Path, cheat: str, kinds: str, finding: str) -> None:
    assert kafka_jars
    done = run("--brokers", "java", "--kinds", kinds, "--cheat", cheat)
    assert done.returncode == 1, done.stderr
    assert finding in done.stdout
