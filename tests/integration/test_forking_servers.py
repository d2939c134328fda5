"""A web application that starts a broker and is then forked into workers: gunicorn with --preload, and uWSGI."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from kafkalite import Broker
from kafkalite.client import Client
from tests.kit.harness.other_tools import FOLDER, ROOT, needs_tools
from tests.kit.processes.broker import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, needs_tools]

WAIT_S = 60.0
APPLICATION = """
import os

from kafkalite import Broker
from kafkalite.client import Client

STARTER = os.getpid()
broker = Broker(log_dirs=os.environ["DATA"], listeners="kafka://127.0.0.1:" + os.environ["BROKER_PORT"]).start()
broker.create_topic("orders")
SERVERS = broker.bootstrap_servers
starters_client = Client(SERVERS)
starters_client.topics()


def produce():
    with Client(SERVERS) as client, client.producer() as producer:
        producer.send("orders", 0, [b"of a worker"])
    return "sent"


def use_broker():
    return broker.create_topic("of-a-worker")


def use_client():
    return starters_client.topics()


def leave():
    starters_client.close()
    broker.stop()
    broker.__exit__(None, None, None)
    return "left"


def links():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink("/proc/self/fd/" + name))
        except OSError:
            pass
    return "\\n".join(found)


def processes():
    return f"{STARTER} {os.getpid()}"


def application(environ, start_response):
    try:
        body = str(globals()[environ["PATH_INFO"].strip("/")]())
    except Exception as error:
        body = f"{type(error).__name__}: {error}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""


def gunicorn(port: int) -> list[str]:
    address = f"127.0.0.1:{port}"
    return [sys.executable, "-m", "gunicorn", "--preload", "--workers", "1", "--bind", address, "served:application"]


def uwsgi(port: int) -> list[str]:
    options = ["--master", "--processes", "1", "--enable-threads", "--py-call-uwsgi-fork-hooks", "--need-app"]
    return [str(FOLDER / "bin" / "uwsgi"), *options, "--http-socket", f"127.0.0.1:{port}", "--module", "served"]


class Served:
    """The application under a server."""

    def __init__(self, command: Callable[[int], list[str]], folder: Path) -> None:
        self.data, self.broker_port, self._port = folder / "data", free_port(), free_port()
        (folder / "served.py").write_text(APPLICATION)
        packages = [path for path in sys.path if path.endswith("site-packages")]
        environment = {
            **os.environ,
            "DATA": str(self.data),
            "BROKER_PORT": str(self.broker_port),
            "PYTHONPATH": ":".join([str(FOLDER), str(ROOT), str(folder), *packages]),
        }
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command(self._port), cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def ask(self, what: str) -> str:
        """The answer of a worker."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{what}", timeout=WAIT_S) as answer:
            return str(answer.read().decode())

    def answers(self) -> bool:
        """Whether a worker answers."""
        assert self.process.poll() is None, self._output.read_text()
        with contextlib.suppress(OSError):
            return bool(self.ask("processes"))
        return False

    def worker(self) -> int:
        """The process of the worker, which is not the one that started the broker."""
        starter, worker = map(int, self.ask("processes").split())
        assert starter == self.process.pid != worker
        return worker


@pytest.fixture(params=[gunicorn, uwsgi], ids=["gunicorn", "uwsgi"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    served = Served(request.param, tmp_path)
    try:
        wait_until(served.answers, WAIT_S, "the first worker")
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(served.process.pid, signal.SIGKILL)
        served.process.wait(WAIT_S)


def test_workers_are_clients_and_leave_the_broker_to_its_process(served: Served) -> None:
    first = served.worker()
    assert served.ask("produce") == "sent"
    assert served.ask("use_broker").startswith(f"RuntimeError: this broker belongs to process {served.process.pid}")
    assert served.ask("use_client").startswith(f"ForeignProcess: this client belongs to process {served.process.pid}")
    assert served.ask("leave") == "left"

    os.kill(first, signal.SIGTERM)  # the worker ends in order, and its objects with it
    wait_until(lambda: served.answers() and served.worker() != first, WAIT_S, "another worker")
    assert served.ask("produce") == "sent"
    assert not (served.data / ".kafka_cleanshutdown").exists()
    with Client(f"127.0.0.1:{served.broker_port}") as client:
        assert client.end_offset("orders", 0) == 2
        assert set(client.topics()) == {"orders"}


def test_a_worker_that_outlives_its_master_keeps_neither_the_directory_nor_the_port(served: Served) -> None:
    worker = served.worker()
    assert str(served.data) not in served.ask("links")
    os.kill(worker, signal.SIGSTOP)  # it cannot end when it misses its master
    served.process.kill()
    served.process.wait(WAIT_S)
    with Broker(log_dirs=str(served.data), listeners=f"kafka://127.0.0.1:{served.broker_port}") as broker:
        assert not broker.logs.clean_start
        os.kill(worker, 0)
