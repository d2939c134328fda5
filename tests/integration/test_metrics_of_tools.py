"""`--metrics` of a mirror, a registry and a load: what they tell, and when they are ready."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.load import status as load_status
from kafkalite.load.status import LoadStatus
from kafkalite.mirror import status as mirror_status
from kafkalite.schema_registry import status as registry_status
from kafkalite.schema_registry.server import RegistryServer
from tests.kit.harness.scrape import Scrape, ask
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until
from tests.kit.processes.schema_registry import call

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
FAST = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2}


class Command:
    """A command of ours with a page of metrics."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.log = directory / "command.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", *words, "--metrics", "127.0.0.1:0"],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = wait_until(self._url, TIMEOUT_S, "the page")

    def _url(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"metrics at (http://\S+)/metrics", self.log.read_text())
        return found[1] if found else ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "live") as running:
        yield running


@pytest.fixture
def offline() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


def test_a_mirror(tmp_path: Path, live: BrokerProcess, offline: Broker) -> None:
    with Client(live.bootstrap) as client:
        client.admin.create_topic("a", 2)
        client.produce("a", 0, [b"x"] * 100)
    both = ["--from", live.bootstrap, "--to", offline.bootstrap_servers]
    command = Command(tmp_path, "mirror", *both, "--name", "m", "--topics", "a", "-q", "--sync-group-offsets")
    try:
        wait_until(lambda: ask(command.url, "/health/ready").json == {"status": "up"}, TIMEOUT_S, "readiness")
        wait_until(
            lambda: (
                Scrape.of(command.url).samples.get(
                    ("kafkalite_mirror_records_total", frozenset({("mirror", "m"), ("topic", "a")}))
                )
                == 100
            ),
            TIMEOUT_S,
            "the records",
        )
        seen = Scrape.of(command.url)
        assert seen("kafkalite_mirror_lag", mirror="m", topic="a") == 0
        assert seen("kafkalite_mirror_bytes_total", mirror="m", topic="a") > 100
        assert seen("kafkalite_mirror_transactions_total", mirror="m") >= 1
        assert seen("kafkalite_mirror_last_success_seconds_ago", mirror="m") < TIMEOUT_S
        assert seen("kafkalite_mirror_up", mirror="m") == 1
        assert seen("kafkalite_mirror_group_positions", mirror="m") == 0
        assert seen("process_resident_memory_bytes") > 0
        assert ask(command.url, "/health/live").status == 200
        live.stop()
        wait_until(lambda: "error_info" in ask(command.url).text, TIMEOUT_S, "the error")
        assert command.process.poll() is None
        live.start()
        wait_until(lambda: "error_info" not in ask(command.url).text, TIMEOUT_S, "its end")
        command.process.terminate()
        assert command.process.wait(TIMEOUT_S) == 0
    finally:
        command.close()


def test_a_mirror_that_does_not_get_on_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    status = mirror_status.MirrorStatus("m", "live:9092")
    assert status.not_ready() == ["mirror m of live:9092 does not copy: it has not started yet"]
    status.lost(OSError("away"))
    assert status.not_ready() == ["mirror m of live:9092 does not copy: away"]
    status.ended = "another has begun"
    assert status.not_ready() == ["mirror m of live:9092 has stopped: another has begun"]


def test_a_registry(live: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with RegistryServer(live.bootstrap, port=0) as registry:
        body = {"schema": '"string"'}
        assert call(registry.address, "POST", "/subjects/s/versions", body)[0] == 200
        assert call(registry.address, "GET", "/subjects/none/versions")[0] == 404
        told = {family.name: dict(family.rows) for family in registry.status.families()}
        assert told["kafkalite_registry_requests"] == {
            '{method="POST",status="200"}': 1,
            '{method="GET",status="404"}': 1,
        }
        assert told["kafkalite_registry_request_seconds"]['{method="POST",status="200"}'] > 0
        assert [told[f"kafkalite_registry_{name}"][""] for name in ("subjects", "schema_versions", "up")] == [1, 1, 1]
        assert told["kafkalite_registry_topic_offset"][""] > 0
        assert registry.status.not_ready() == []
        live.stop()
        wait_until(lambda: registry.store.follow_error, TIMEOUT_S, "the error")
        monkeypatch.setattr(registry_status, "STALE_S", 0.0)
        assert "cannot read the topic for" in registry.status.not_ready()[0]
        live.start()
        wait_until(lambda: not registry.store.follow_error, TIMEOUT_S, "its end")
        registry.store.failed.set()
        assert registry.status.not_ready() == [
            "the topic can no longer be followed, so the schemas in memory may be outdated"
        ]


def test_a_registry_serves_them(tmp_path: Path, offline: Broker) -> None:
    command = Command(tmp_path, "registry", "-b", offline.bootstrap_servers, "--port", "0")
    try:
        wait_until(lambda: ask(command.url, "/health/ready").status == 200, TIMEOUT_S, "readiness")
        assert Scrape.of(command.url)("kafkalite_registry_subjects") == 0
        command.process.terminate()
        assert command.process.wait(TIMEOUT_S) == 0
    finally:
        command.close()


def test_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    status = LoadStatus(2.0)
    assert status.not_ready() == ["nothing has been loaded yet"]
    status.failed("the broker is away")
    assert status.not_ready() == ["nothing has been loaded yet: the broker is away"]
    status.published(100, 5000, 2)
    status.finished(7)
    assert status.not_ready() == []
    told = {family.name: dict(family.rows) for family in status.families()}
    wanted = {"records": 100, "bytes": 5000, "files": 2, "commits": 1, "rounds": 1, "lag": 7, "up": 1}
    assert {name: told[f"kafkalite_load_{name}"][""] for name in wanted} == wanted
    assert "kafkalite_load_error_info" not in told
    monkeypatch.setattr(load_status, "STALE_S_MIN", 0.0)
    stale = LoadStatus(None)
    stale.finished(0)
    stale.failed("away")
    assert stale.not_ready()[0].endswith(": away")
