"""The code in docs/testing.md works as written: tests, programs, commands, and pytest's file."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.testing import KafkaBroker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_tests_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    settings, _ = blocks("ini")
    pytester.makeini(f"{settings}addopts = -p kafkalite.testing\n")
    tests = [block for block in blocks("python") if "def test_" in block]
    pytester.makepyfile(**{f"test_{number}": text for number, text in enumerate(tests)})
    count = "\n".join(tests).count("def test_")
    assert count >= 7
    pytester.runpytest_subprocess().assert_outcomes(passed=count)


@pytest.mark.slow
def test_the_option_runs_the_broker_in_pytests_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    _, option = blocks("ini")
    pytester.makeini(f"{option}addopts = -p kafkalite.testing\n")
    pytester.makepyfile("def test_it(kafka_broker):\n    assert kafka_broker.in_process and kafka_broker.logs\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (block for block in blocks("python") if "def test_" not in block)
    exec(compile(program, "docs/testing.md", "exec"), {})  # noqa: S102  # our own text
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)


def test_commands_run() -> None:
    (text,) = blocks("sh")
    printed = ""
    for line in text.splitlines():
        name, *arguments = shlex.split(line)
        assert name == "kafkalite"
        done = subprocess.run(
            [sys.executable, "-m", "kafkalite", *arguments],
            capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    address = r"127\.0\.0\.1:\d+"
    assert re.fullmatch(rf"the broker is at {address}\n{address} and http://{address}\n", printed)


def test_recipes_use_commands_and_flags_that_are_there() -> None:
    recipes = "\n".join(blocks("yaml"))
    used = set(re.findall(r"kafkalite (\w+)(?: (--\w+))?", recipes))
    assert used == {("run", "--topic")}


@pytest.mark.parametrize("kind", [Broker, KafkaBroker])
def test_every_public_member_of_a_broker_is_documented(kind: type) -> None:
    public = {name for name in vars(kind) if not name.startswith("_")}
    untold = [name for name in public if not re.search(rf"`{name}[`(]", TEXT)]
    assert untold == []
    assert [name for name in public if not getattr(kind, name).__doc__] == []
