"""npm's `kafka` 0.2.3, a client of Kafka 0.7: it reads back what it sends. Fetched with npm into build/compat."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.broker import Broker
from tests.support.process import REPOSITORY

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "node_kafka"
NAME = "node kafka 0.2.3"
TIMEOUT_S = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    listeners = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"
    broker = Broker({"listeners": listeners, "log.flush.interval": 1}).start()
    yield broker
    broker.stop()


def test_what_it_sends_it_reads_back(broker: Broker, not_run: Callable[[str, str], NoReturn]) -> None:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            not_run(NAME, f"{tool} is not on the PATH (apt-get install nodejs npm)")
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / name, BUILD / name)
    if not (BUILD / "node_modules" / "kafka").exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(command, cwd=BUILD, check=True, capture_output=True, text=True, timeout=300)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            not_run(NAME, f"npm could not fetch it: {error} {getattr(error, 'stderr', '')}")
    assert broker.classic_endpoint is not None
    command = ["node", str(BUILD / "client.js"), str(broker.classic_endpoint.port), "node"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert json.loads(done.stdout) == [["node", "one", 12], ["node", "two", 24], ["node", "three", 38]]
