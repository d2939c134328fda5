"""What the README tells people to type works as it stands there, addresses and paths apart."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite import Broker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run_python(script: str, directory: Path) -> str:
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_confluent_example_reads_back_what_it_wrote(kafka_broker: Broker, tmp_path: Path) -> None:
    (script,) = (block for block in blocks("python") if "confluent_kafka" in block)
    assert "127.0.0.1:9092" in script
    printed = run_python(script.replace("127.0.0.1:9092", kafka_broker.bootstrap_servers), tmp_path)
    assert printed == "b'hello'\n"


def test_embedded_example_serves(tmp_path: Path) -> None:
    (script,) = (block for block in blocks("python") if "with Broker(" in block)
    printed = run_python(script.replace("/var/lib/kafkalite", str(tmp_path / "data")), tmp_path)
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", printed)
    assert (tmp_path / "data" / "metadata.journal").exists()


def test_pytest_example_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (script,) = (block for block in blocks("python") if "kafka_topic" in block)
    sender = "def send_order(bootstrap, topic):\n    assert bootstrap.startswith('127.0.0.1:') and topic\n\n"
    pytester.makepyfile(sender + script)
    pytester.runpytest_subprocess("-p", "kafkalite.testing").assert_outcomes(passed=1)


def test_command_line_tour_works(tmp_path: Path) -> None:
    """In the order of the README, from its own `start` on; the port is a free one."""
    (tour,) = (block for block in blocks("sh") if "kafkalite topics create" in block)
    commands = [shlex.split(line, comments=True) for line in tour.splitlines()]
    (tmp_path / "server.properties").write_text("log.dirs=data\n")
    (tmp_path / "access.log").write_text("GET /\n" * 5)
    start, *rest = commands
    assert start[:2] == ["kafkalite", "start"]
    listen = ["--listeners", "kafka://127.0.0.1:0", "--ready-file", "ready"]
    with subprocess.Popen(
        [sys.executable, "-m", *start, *listen],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        try:
            assert broker.stdout.readline().startswith("kafkalite is ready")
            address = (tmp_path / "ready").read_text().strip()
            for command in rest:
                run_tour_command(command, tmp_path, address)
        finally:
            broker.terminate()
            broker.communicate(timeout=30)
    assert broker.returncode == 0


def run_tour_command(command: list[str], directory: Path, address: str) -> None:
    words = command[1:]
    source = None
    if "<" in words:
        source = (directory / words.pop(words.index("<") + 1)).open()
        words.remove("<")
    result = subprocess.run(
        [sys.executable, "-m", "kafkalite", *words],
        cwd=directory,
        stdin=source or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**ENVIRONMENT, "KAFKALITE_BOOTSTRAP": address},
    )
    if source is not None:
        source.close()
    assert result.returncode == 0, f"{command}: {result.stderr}"
