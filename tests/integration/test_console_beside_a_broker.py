"""`kafkalite start --console`: it comes and goes with its broker, and the broker does not mind what it does."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kafkalite.cli import UsageError, beside
from kafkalite.cli.beside import CommandBeside, console_beside
from kafkalite.client import Client
from kafkalite.settings.broker import BrokerConfig
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

WAIT_S = 60


class Started:
    """A broker with a console, from the command line."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        ready = directory / "ready"
        words = ["start", "--data-dir", str(directory / "data"), "--listeners", "kafka://127.0.0.1:0"]
        words += ["--ready-file", str(ready), "--console", "127.0.0.1:0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", *words], stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(ready.exists, WAIT_S, "the broker is ready")
        self.servers = ready.read_text().strip()

    def urls(self) -> list[str]:
        """Where the console has said that it is, each time."""
        return re.findall(r"kafkalite console is ready: (http://\S+)", self.log.read_text())

    def console(self) -> int:
        """The process of the console that runs now."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        pids = {*children.split()} | {pid for task in tasks for pid in (task / "children").read_text().split()}
        (pid,) = {int(pid) for pid in pids}
        return pid


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    running = Started(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.wait()


def is_there(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def get(url: str) -> bytes:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.netloc, timeout=WAIT_S)
    try:
        connection.request("GET", split.path)
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.slow
def test_it_serves_comes_back_when_it_dies_and_ends_with_the_broker(started: Started) -> None:
    (url,) = wait_until(started.urls, WAIT_S, "the console is ready")
    assert b"kafkalite" in get(f"{url}/topics")
    first = started.console()
    own = os.getpriority(os.PRIO_PROCESS, started.process.pid)
    assert os.getpriority(os.PRIO_PROCESS, first) == min(own + beside.NICENESS, 19)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(started.urls()) == 2, WAIT_S, "the console is there again")
    second = started.console()
    assert second != first
    with Client(started.servers) as client:
        client.admin.create_topic("orders", 1)
    assert b"orders" in get(f"{started.urls()[1]}/topics")
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(WAIT_S) == 0
    assert not is_there(second)


def test_it_ends_when_the_broker_is_killed(started: Started) -> None:
    wait_until(started.urls, WAIT_S, "the console is ready")
    pid = started.console()
    started.process.kill()
    started.process.wait(WAIT_S)
    wait_until(lambda: not is_there(pid), WAIT_S, "the console has ended")


def test_a_broker_without_it_imports_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import sys; from kafkalite.cli import start; import kafkalite.broker.server;"
        "print([name for name in sys.modules if name.startswith(('kafkalite.console', 'kafkalite.web', 'jinja2')) "
        "or name == 'kafkalite.cli.beside'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


def test_one_that_cannot_begin_or_dies_too_often_stays_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(beside, "PAUSES_S", (0.01, 0.01))
    for status, starts in ((2, 1), (7, 3)):
        caplog.clear()
        program = [sys.executable, "-c", f"import sys; print('came'); sys.exit({status})"]
        companion = CommandBeside(["console"], final=(2,), program=program)
        assert companion.notes() == []
        companion.start("127.0.0.1:1")
        wait_until(companion.notes, WAIT_S, "it was given up")
        companion.stop()
        companion.stop()
        assert companion.notes() == [
            f"the console exited with status {status} and is not restarted; the broker continues"
        ]
        assert [row.getMessage() for row in caplog.records].count("came") == starts


def test_one_that_says_why_it_fails_is_quoted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(beside, "PAUSES_S", (0.01,))
    program = "import sys; print('working'); sys.exit('kafkalite: the disk is full')"
    companion = CommandBeside(["load"], gathers=True, program=[sys.executable, "-uc", program])
    companion.start("127.0.0.1:1")
    wait_until(companion.notes, WAIT_S, "it was given up")
    companion.stop()
    exited = "the load exited with status 1 (the disk is full)"
    assert companion.notes() == [f"{exited} and is not restarted; the broker continues"]
    assert [(row.levelname, row.getMessage()) for row in caplog.records] == [
        ("INFO", "working"),
        ("WARNING", "the load: the disk is full"),
        ("WARNING", f"{exited} and restarts in 0.01 s"),
        ("INFO", "working"),
        ("WARNING", "the load: the disk is full"),
        ("ERROR", f"{exited} and is not restarted; the broker continues"),
    ]


def test_one_that_does_not_want_to_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    program = "import time; print('came', flush=True); time.sleep(1000)"
    companion = CommandBeside(["console"], stop_s=0.2, program=[sys.executable, "-c", program])
    companion.start("127.0.0.1:1")
    wait_until(lambda: "came" in caplog.text, WAIT_S, "it is there")
    companion.stop()
    child = companion._child
    assert child is not None
    assert child.wait(WAIT_S) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("text", "listeners", "said"),
    [
        ("0.0.0.0:8090", "kafka://127.0.0.1:0", "must listen on a loopback address"),
        ("https://127.0.0.1:8090", "kafka://127.0.0.1:0", "must listen on a loopback address"),
        ("nonsense://", "kafka://127.0.0.1:0", "--console: "),
        ("127.0.0.1:8090", "kafka07://127.0.0.1:0", "cannot reach this broker"),
    ],
)
def test_what_could_not_work_is_said_at_once(text: str, listeners: str, said: str, tmp_path: Path) -> None:
    config = BrokerConfig.load(overrides={"listeners": listeners, "log.dirs": str(tmp_path)})
    with pytest.raises(UsageError, match=said):
        console_beside(text, config.bound_listeners, "info")
