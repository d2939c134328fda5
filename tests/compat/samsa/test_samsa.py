"""PyPI's `samsa` 0.3.11, a client of Kafka 0.7 with groups in ZooKeeper: on Python 2.7 as it is, on 3 made to run.

For Python 3 pip fetches it and `for_python3.py` edits it, so it can run wherever the tests do. A Python 2.7 no registry
has: where the machine has none, that is said, and is no failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from kazoo.exceptions import NoNodeError

from kafkalite.broker import Broker
from tests.compat.toolchains import CACHE, NotAvailable, run
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until
from tests.kit.processes.zookeeper import ZooKeeper, installed

HERE = Path(__file__).parent
VERSION = "0.3.11"
TIMEOUT_S = 90.0
pytestmark = pytest.mark.zookeeper


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by `make` elsewhere and moved into place: complete when it is there."""
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            fresh = Path(work) / "fresh"
            make(fresh)
            if not folder.exists():  # else another run was quicker
                fresh.rename(folder)
    return folder


def for_python_3(folder: Path) -> None:
    tools = folder.with_name("tools")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    run(*pip, "--target", str(folder), "--no-deps", f"samsa=={VERSION}")
    run(*pip, "--target", str(tools), "fissix==24.4.24")
    run(sys.executable, str(HERE / "for_python3.py"), str(folder / "samsa"), PYTHONPATH=str(tools))


def python_2() -> str:
    """A Python 2.7 of the machine's that has pip."""
    named = [shutil.which(name) for name in ("python2.7", "python2")]
    own = sorted((Path.home() / ".pyenv" / "versions").glob("2.7*/bin/python2.7"))
    for path in filter(None, [*named, *map(str, own)]):
        try:
            run(path, "-c", "import sys, pip; assert sys.version_info[:2] == (2, 7)")
        except NotAvailable:
            continue  # such as a version manager's shim with another version selected
        return path
    raise NotAvailable("there is no Python 2.7 with pip here")


class Flow:
    """One run of `client.py`; `results` grows as it says them."""

    def __init__(self, command: list[str], packages: Path) -> None:
        self.results: list[object] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.results.append(json.loads(line))

    def finish(self) -> list[object]:
        """Ends its standard input, waits for its end, and gives all its results."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        self._errors.seek(0)
        assert status == 0, (self.results, self._errors.read()[-4000:].decode())
        return self.results

    def end(self) -> None:
        """Kill the process in any state."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            stream.close()


class Program:
    """`client.py` in one Python, with the packages of a directory."""

    def __init__(self, python: str, packages: Path, zookeeper: str) -> None:
        self._command = [python, str(HERE / "client.py"), zookeeper]
        self._packages = packages
        self._flows: list[Flow] = []

    def start(self, topic: str, *arguments: str) -> Flow:
        self._flows.append(Flow([*self._command, topic, *arguments], self._packages))
        return self._flows[-1]

    def __call__(self, topic: str, *arguments: str) -> list[object]:
        """Return all output of a flow."""
        return self.start(topic, *arguments).finish()

    def close(self) -> None:
        for flow in self._flows:
            flow.end()


@pytest.fixture(scope="module")
def zookeeper(not_run: Callable[[str, str], NoReturn]) -> Iterator[ZooKeeper]:
    if not installed():
        not_run("samsa", "ZooKeeper is not installed (apt-get install zookeeper default-jdk-headless)")
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeper) -> Iterator[Broker]:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "zookeeper.connect": zookeeper.address,
        "node.id": 0,
        "num.partitions": 2,
        "log.flush.interval": 1,
    }
    broker = Broker(settings).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def packages_2() -> tuple[str, Path]:
    """A Python 2.7, and samsa for it as PyPI has it."""
    python = python_2()

    def install(folder: Path) -> None:
        pip = (python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
        run(*pip, "--target", str(folder), "kazoo==1.3.1", f"samsa=={VERSION}")
        (folder / "zope" / "__init__.py").touch()  # as a .pth file does where packages are installed permanently

    return python, made_once(CACHE / f"samsa-{VERSION}-python2", install)


@pytest.fixture(params=sample(["python 3", "python 2.7"], 1))
def samsa(
    request: pytest.FixtureRequest,
    zookeeper: ZooKeeper,
    broker: Broker,
    not_run: Callable[[str, str], NoReturn],
    not_here: Callable[[str, str], NoReturn],
) -> Iterator[Program]:
    if request.param == "python 3":
        try:
            python, packages = sys.executable, made_once(CACHE / f"samsa-{VERSION}-python3", for_python_3)
        except NotAvailable as missing:
            not_run("samsa", str(missing))
    else:
        try:
            python, packages = request.getfixturevalue("packages_2")
        except NotAvailable as missing:
            not_here("samsa on Python 2.7", str(missing))
    program = Program(python, packages, zookeeper.address)
    yield program
    program.close()


@pytest.fixture
def look(zookeeper: ZooKeeper) -> Iterator[Callable[[str], dict[str, str]]]:
    """`look(path)`: the children of a node with their values, none where it is not."""
    client = zookeeper.client()

    def children(path: str) -> dict[str, str]:
        found = {}
        with contextlib.suppress(NoNodeError):  # not there, or a member left while its nodes were read
            for name in client.get_children(path):
                found[name] = client.get(f"{path}/{name}")[0].decode()
        return found

    yield children
    client.stop()
    client.close()


def test_every_request(samsa: Program, topic: str) -> None:
    (found,) = samsa(topic, "requests")
    rows = [[0, 13, "zero"], [13, 25, "one"], [25, 38, "two"], [38, 53, "three"]]
    assert found == {
        "fetch": rows,
        "cut": rows[:3],
        "multifetch": [rows[2:], [[14, 28, "five"]]],
        "end": [],
        "latest": [53, 0],
        "earliest": [0],
        "beyond": "OffsetOutOfRangeError",
        "nowhere": "WrongPartitionError",
    }


def test_a_group_resumes_where_it_committed(
    samsa: Program, topic: str, look: Callable[[str], dict[str, str]], broker: Broker
) -> None:
    broker.create_topic(topic, 1, message_format="classic")
    wait_until(lambda: look(f"/brokers/topics/{topic}") == {"0": "1"}, TIMEOUT_S, "the topic's entry")
    payloads = [f"message-{number}" for number in range(3)]
    samsa(topic, "publish", *payloads)
    for number, payload in enumerate(payloads):
        assert samsa(topic, "consume", "readers", "1") == [payload]
        assert look(f"/consumers/readers/offsets/{topic}") == {"0-0": str((number + 1) * (9 + len(payload)))}
        assert look(f"/consumers/readers/owners/{topic}") == look("/consumers/readers/ids") == {}


def test_first_message_makes_the_topic(samsa: Program, topic: str, look: Callable[[str], dict[str, str]]) -> None:
    samsa(topic, "publish", "first")
    wait_until(lambda: look(f"/brokers/topics/{topic}") == {"0": "2"}, TIMEOUT_S, "the topic's entry")
    assert samsa(topic, "consume", f"readers-{topic}", "1") == ["first"]


def test_members_share_the_partitions(samsa: Program, topic: str, look: Callable[[str], dict[str, str]]) -> None:
    group = f"group-{topic}"

    def owners() -> list[str]:
        return list(look(f"/consumers/{group}/owners/{topic}").values())

    def wait(condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, TIMEOUT_S, what)

    shared = [f"shared-{number}" for number in range(4)]
    samsa(topic, "publish", "first")
    wait(lambda: look(f"/brokers/topics/{topic}") == {"0": "2"}, "the topic's entry")
    one = samsa.start(topic, "member", group)
    wait(lambda: len(owners()) == 2 and one.results == ["first"], "both partitions for the first member")
    two = samsa.start(topic, "member", group)
    wait(lambda: len(set(owners())) == 2, "a partition for each")
    assert set(look(f"/consumers/{group}/ids").values()) == {topic}, "the bare name of its topic"
    for payload in shared:  # each is published to a random partition
        samsa(topic, "publish", payload)
    wait(lambda: len(one.results + two.results) == 1 + len(shared), "all of them")
    one.finish()
    wait(lambda: len(owners()) == 2 and len(set(owners())) == 1, "both partitions for the second member")
    samsa(topic, "publish", "last")
    wait(lambda: "last" in two.results, "the second member reads on")
    two.finish()
    everything = ["first", *shared, "last"]
    assert sorted(one.results + two.results, key=str) == sorted(everything)
    committed = look(f"/consumers/{group}/offsets/{topic}").values()
    assert sum(map(int, committed)) == sum(9 + len(payload) for payload in everything)
