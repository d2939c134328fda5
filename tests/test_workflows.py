"""GitHub's workflows run what `.ci/run` and the Makefile run, and take nothing that can change under them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PREPARES = "sudo apt-get install "
STEPS = {"lint", "sanitizers", "newer", "tests"}


def jobs_of(path: Path) -> dict[str, Any]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    assert isinstance(jobs, dict)
    return jobs


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs_of(path).values() for step in job["steps"]]


def commands_of(path: Path) -> list[str]:
    return [step["run"] for step in steps_of(path) if "run" in step]


def test_there_are_workflows_for_all_that_strangers_look_for() -> None:
    names = {name for path in WORKFLOWS for name in jobs_of(path)}
    assert {"lint", "tests", "sanitizers", "wheels", "site"} <= names


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_a_step_of_ours(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for command in commands_of(path):
        if command.startswith(PREPARES):
            continue
        found = re.fullmatch(r'(?:sudo env "PATH=\$PATH" )?bash \.ci/run (\w+)|make ([a-z-]+)(?: [A-Z]+=\S+)*', command)
        assert found is not None, command
        assert found[1] in STEPS if found[1] else found[2] in targets, command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_may_only_read(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["permissions"] == {"contents": "read"}
    actions = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert actions
    assert [each for each in actions if re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", each) is None] == []


def test_tests_and_wheels_are_for_every_python_since_the_oldest() -> None:
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert oldest is not None
    expected = {f"3.{minor}" for minor in range(int(oldest[1]), 15)}
    check = jobs_of(ROOT / ".github" / "workflows" / "check.yml")
    assert set(check["tests"]["strategy"]["matrix"]["python"]) == expected
    wheels = steps_of(ROOT / ".github" / "workflows" / "wheels.yml")
    (listed,) = [step["with"]["python-version"] for step in wheels if "python-version" in step.get("with", {})]
    assert set(listed.split()) == expected


def test_an_unknown_step_is_refused_before_anything_runs() -> None:
    done = subprocess.run(["bash", ".ci/run", "lint", "test"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'unknown step "test"; expected lint, sanitizers, newer or tests\n'


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("lint", "sanitizers", "tests"), ["lint", "test-debug", "test-asan", "test"]),
        (("lint",), ["lint"]),
        (("tests", "sanitizers"), ["test-debug", "test-asan", "test"]),
    ],
)
def test_steps_run_in_order(tmp_path: Path, asked: tuple[str, ...], expected: list[str]) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"make": f'echo "$1" >>{tmp_path}/made', "python3": "exit 0", "gcc": "exit 0"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["bash", ".ci/run", *asked], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "made").read_text().split() == expected
