"""One broker for all clients of a run, and a visible report of each client that could not run.

KAFKALITE_COMPAT_BOOTSTRAP=host:port runs the same tests against another broker, such as Apache Kafka, to distinguish a
fault of ours from a property of the client. KAFKALITE_COMPAT_BROKERS=3 runs them against that number of brokers in a
cluster of Apache Kafka's controller, one replica a partition. KAFKALITE_COMPAT_REQUIRE=1 turns 'not run' into a failure
(CI). KAFKALITE_COMPAT_DOOR=SCRAM-SHA-512, or another mechanism of `doors.py`, leads every client through SASL_SSL to a
broker that checks ACLs; neutral readers use its plain listener. The three cannot be combined.
KAFKALITE_COMPAT_RECORD=FILE writes the matrix of what ran (`recorder.py`).
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.compat.doors import MECHANISMS, SETTINGS, Door, House, open_house
from tests.compat.recorder import Recorder
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.kafka_cluster import KafkaCluster

WHERE = ("KAFKALITE_COMPAT_BOOTSTRAP", "KAFKALITE_COMPAT_BROKERS", "KAFKALITE_COMPAT_DOOR")
_not_run: dict[str, str] = {}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of the broker under test."""
    foreign = os.environ.get("KAFKALITE_COMPAT_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    if through := os.environ.get("KAFKALITE_COMPAT_DOOR"):
        with (
            open_house(tmp_path_factory.mktemp("compat"), closed=True) as house,
            pytest.MonkeyPatch.context() as environment,
        ):
            enter(house[through], environment)
            yield house.address(through)
        return
    brokers = int(os.environ.get("KAFKALITE_COMPAT_BROKERS", "1"))
    if brokers > 1:
        directory = tmp_path_factory.mktemp("compat")
        with KafkaCluster(directory, brokers, SETTINGS, {"message.max.bytes": "4194304"}) as cluster:
            yield cluster.bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("compat"), SETTINGS)
    broker.start()
    yield broker.bootstrap
    broker.stop()
    sys.stdout.write(broker.log()[-4000:])


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A broker with every door there is; KAFKALITE_COMPAT_BOOTSTRAP has no say in it."""
    with open_house(tmp_path_factory.mktemp("doors")) as found:
        yield found


@pytest.fixture
def door(house: House, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Door:
    """The door that the test's parameter names, in the environment of the programs that it starts, too."""
    found = house[request.param]
    enter(found, monkeypatch)
    return found


def enter(door: Door, environment: pytest.MonkeyPatch) -> None:
    """Leads programs that are started from now on through this door, and through no other."""
    for name in [name for name in os.environ if name.startswith("DOOR_")]:
        environment.delenv(name)
    for name, text in door.environment().items():
        environment.setenv(name, text)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a new topic name."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]
    return f"{stem}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def not_run() -> Callable[[str, str], NoReturn]:
    """`not_run(client, reason)`: ends the test as skipped, and says so at the end of the run."""

    def report(client: str, reason: str) -> NoReturn:
        _not_run[client] = reason
        if os.environ.get("KAFKALITE_COMPAT_REQUIRE") == "1":
            pytest.fail(f"{client} could not run: {reason}")
        pytest.skip(f"{client} could not run: {reason}")

    return report


@pytest.fixture(scope="session")
def not_here() -> Callable[[str, str], NoReturn]:
    """As not_run, for software that no registry has, so that no run can require it."""

    def report(client: str, reason: str) -> NoReturn:
        _not_run[client] = reason
        pytest.skip(f"{client} could not run: {reason}")

    return report


def pytest_configure(config: pytest.Config) -> None:
    chosen = [name for name in WHERE if os.environ.get(name)]
    if len(chosen) > 1:
        raise pytest.UsageError(f"{' and '.join(chosen)} cannot be combined")
    if os.environ.get("KAFKALITE_COMPAT_DOOR") not in {None, "", *MECHANISMS}:
        raise pytest.UsageError(f"KAFKALITE_COMPAT_DOOR is one of {', '.join(MECHANISMS)}")
    config.pluginmanager.register(Recorder(), "client matrix")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for client, reason in _not_run.items():
        terminalreporter.write_line(f"COMPATIBILITY NOT CHECKED: {client}: {reason}", red=True, bold=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.compat)
