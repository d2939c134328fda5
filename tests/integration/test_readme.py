"""Run the commands and programs of the README and of the tour in docs/shell.md, with other addresses and paths."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite import Broker
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "shell.md").read_text(encoding="utf-8")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


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


def test_failing_message_becomes_a_dead_letter_and_is_redriven(kafka_broker: Broker, tmp_path: Path) -> None:
    """The program is started twice, the second time with the handler repaired."""
    (program,) = (block for block in blocks("python") if "failures.handler" in block)
    first, second = (block for block in blocks("sh") if "python shop.py" in block)
    address = kafka_broker.bootstrap_servers
    environment = {
        **ENVIRONMENT,
        "KAFKALITE_BOOTSTRAP": address,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    (tmp_path / "bin").mkdir()
    for name, words in (("kafkalite", "-m kafkalite"), ("python", "")):
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        command.chmod(0o755)

    def run_shell(script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def run_shop(source: str, billed: list[str]) -> None:
        """Run shop.py until it has billed these orders and its dead letters are committed, then interrupt it."""
        (tmp_path / "shop.py").write_text(source.replace("127.0.0.1:9092", address))
        command = [tmp_path / "bin" / "python", "shop.py"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as shop:
            assert shop.stdout is not None
            try:
                assert sorted(shop.stdout.readline().rstrip() for _ in billed) == billed
                wait_until(has_no_lag, 60, "the group has committed everything")
            finally:
                shop.send_signal(signal.SIGINT)
                shop.communicate(timeout=60)

    def has_no_lag() -> bool:
        (group,) = json.loads(run_shell("kafkalite groups describe billing --json"))
        return {row["lag"] for row in group["partitions"]} == {0}

    before, after = first.split("python shop.py", 1)
    run_shell(before)
    run_shop(program, ["billed a book", "billed a lamp"])
    listed = run_shell(after.split("\n", 1)[1])
    assert [word for word in ("orders-0-1", "LookupError", "unknown article") if word not in listed] == []
    redrive, _ = second.split("python shop.py", 1)
    run_shell(redrive)
    run_shop(program.replace('b"?"', 'b"none"'), ["billed ?"])
    assert "orders-0-1" not in run_shell(after.split("\n", 1)[1])


def test_command_line_tour_works(tmp_path: Path) -> None:
    """In the order of the page, from its own `start` on; the port is a free one."""
    (tour,) = (block for block in blocks("sh", TOUR) if "kafkalite start" in block)
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
