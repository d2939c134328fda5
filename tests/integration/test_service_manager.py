"""Messages to systemd, over a socket of the tests; and the unit by systemd's own checks."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker, composition
from kafkalite.cli import Parser, service_manager
from kafkalite.cli.service_manager import ServiceManager, watchdog_seconds
from tests.kit.processes.broker import REPOSITORY, wait_until
from tools import deb

pytestmark = pytest.mark.integration

UNITS = sorted((REPOSITORY / "packaging").glob("*.service"))
UNIT_NAMES = [unit.name for unit in UNITS]
OURS = [unit for unit in UNITS if unit.name.startswith("kafkalite")]
KAFKA = "/opt/kafka/bin/kafka-server-start.sh"
EXPOSURE_MAX = 1.5
PATIENCE_S = 60.0


class Listener:
    """systemd's end of the socket."""

    def __init__(self, path: str) -> None:
        self.address = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + path[1:] if path.startswith("@") else path)
        self.socket.settimeout(PATIENCE_S)

    def next(self) -> dict[str, str]:
        """The next message."""
        text = self.socket.recv(65536).decode()
        return dict(line.split("=", 1) for line in text.split("\n"))

    def until(self, key: str) -> dict[str, str]:
        """The next message that says something of this kind."""
        while True:
            message = self.next()
            if key in message:
                return message

    def silent(self, seconds: float) -> bool:
        """Return whether nothing arrives within this time."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return False


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    path = f"@kafkalite-test-{os.getpid()}-{tmp_path.name}" if request.param == "abstract" else str(tmp_path / "notify")
    listener = Listener(path)
    yield listener
    listener.socket.close()


def start(tmp_path: Path, stderr: int = subprocess.DEVNULL, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kafkalite", "start", "--data-dir", str(tmp_path / "data")]
    return subprocess.Popen(
        [*command, "--listeners", "kafka://127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def test_each_step_is_sent_to_systemd(tmp_path: Path, systemd: Listener) -> None:
    process = start(tmp_path, NOTIFY_SOCKET=systemd.address, WATCHDOG_USEC="400000")
    try:
        ready = systemd.until("READY")
        assert ready["STATUS"].startswith("kafkalite is ready: bootstrap.servers=127.0.0.1:")
        for _ in range(3):
            assert systemd.until("WATCHDOG") == {"WATCHDOG": "1"}
        process.send_signal(signal.SIGHUP)
        reloading = systemd.until("RELOADING")
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert systemd.until("READY")["STATUS"] == ready["STATUS"]
        process.terminate()
        assert systemd.until("STOPPING")["STOPPING"] == "1"
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_loop_that_hangs_is_not_fed(tmp_path: Path, systemd: Listener) -> None:
    go_on, stuck = threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        go_on.wait(PATIENCE_S)

    with (
        Broker(log_dirs=str(tmp_path / "data"), num_network_threads=2) as broker,
        ServiceManager(systemd.address, watchdog_s=0.4, turned=broker.loops_turned) as manager,
    ):
        manager.ready("it serves")
        systemd.until("WATCHDOG")
        broker._parts.workers[1].mailbox.put(hang)
        assert stuck.wait(PATIENCE_S)
        while not systemd.silent(1.0):  # one may have been on its way
            pass
        go_on.set()
        systemd.until("WATCHDOG")


def test_a_long_start_extends_its_timeout(systemd: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "INTERVAL_S", 0.02)
    monkeypatch.setattr(service_manager, "CPU_S_MIN", 1e9)
    done = 0
    with ServiceManager(systemd.address, progress=lambda: f"{done} of 9 partitions opened"):
        assert systemd.next() == {"EXTEND_TIMEOUT_USEC": "120000000", "STATUS": "0 of 9 partitions opened"}
        assert systemd.silent(0.3), "nothing was done since"
        done = 1
        assert systemd.next()["STATUS"] == "1 of 9 partitions opened"


def test_work_of_the_processor_counts_as_going_on(systemd: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "INTERVAL_S", 0.02)
    monkeypatch.setattr(service_manager, "CPU_S_MIN", 0.0)
    with ServiceManager(systemd.address, progress=lambda: ""):
        for _ in range(3):
            assert systemd.next() == {"EXTEND_TIMEOUT_USEC": "120000000"}


def test_a_stop_is_extended_as_a_start(systemd: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "INTERVAL_S", 0.02)
    monkeypatch.setattr(service_manager, "CPU_S_MIN", 0.0)
    with ServiceManager(systemd.address) as manager:
        manager.ready("it serves\nwell")
        assert systemd.until("READY")["STATUS"] == "it serves well"
        while not systemd.silent(0.2):  # looks that were under way
            pass
        manager.stopping()
        systemd.until("STOPPING")
        systemd.until("EXTEND_TIMEOUT_USEC")


def test_a_removed_socket_has_no_effect(systemd: Listener) -> None:
    with ServiceManager(systemd.address, watchdog_s=0.04) as manager:
        systemd.socket.close()
        manager.ready("it serves")
        manager.stopping()


def test_how_far_a_start_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(log_dirs=str(tmp_path)) as broker:
        broker.create_topic("things", 3)
        assert broker.progress == ""
    again = Broker(log_dirs=str(tmp_path))
    seen = []
    real = composition.load_authorizer
    monkeypatch.setattr(composition, "load_authorizer", lambda logs: (seen.append(again.progress), real(logs))[1])
    with again:
        assert seen == ["3 of 3 partitions opened"]


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_whether_there_is_a_watchdog(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment) == seconds


@pytest.mark.parametrize("address", ["", "vsock:2:1234"])
def test_without_a_notify_socket_nothing_is_loaded(tmp_path: Path, address: str) -> None:
    process = start(tmp_path, subprocess.PIPE, NOTIFY_SOCKET=address, PYTHONPROFILEIMPORTTIME="1")
    try:
        wait_until((tmp_path / "data" / "meta.properties").exists, PATIENCE_S, "a start")
    finally:
        process.terminate()
        imported = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert "kafkalite.cli.serving" in imported
    assert "service_manager" not in imported


analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (apt: systemd)")


@analyze
@pytest.mark.parametrize("unit", UNITS, ids=UNIT_NAMES)
def test_the_unit_is_right(tmp_path: Path, unit: Path) -> None:
    """But for the command and its manual page, which are not installed here."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/kafkalite/bin/kafkalite", "/bin/true").replace(KAFKA, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "--man=no", "verify", str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@analyze
@pytest.mark.parametrize("unit", UNITS, ids=UNIT_NAMES)
def test_the_memory_of_a_unit_is_bounded(unit: Path) -> None:
    assert re.search(r"^MemoryMax=\d+[%MG]$", unit.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=UNIT_NAMES)
def test_the_unit_is_closed_in(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)], capture_output=True, text=True
    )
    found = re.search(r"Overall exposure level for kafka[a-z@-]*.service: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("unit", OURS, ids=[unit.name for unit in OURS])
def test_the_command_of_a_unit_is_one(unit: Path) -> None:
    """With the options that its first lines show, as far as the parser sees."""
    told = dict(re.findall(r"^#   ([A-Z]+)=(.*)$", unit.read_text(), re.MULTILINE))
    (command,) = re.findall(r"^ExecStart=/opt/kafkalite/bin/kafkalite (.*)$", unit.read_text(), re.MULTILINE)
    words = []
    for word in command.replace("%i", "x").split():
        name = word.strip("${}")
        words += [told[name]] if word.startswith("${") else told[name].split() if word.startswith("$") else [word]
    module = importlib.import_module(f"kafkalite.cli.{words[0]}")
    parser = Parser()
    module.add_arguments(parser)
    parser.parse_args(words[1:])


def test_all_units_are_in_the_package() -> None:
    assert sorted(deb.UNITS) == sorted(UNIT_NAMES)
