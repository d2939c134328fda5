"""`kafkalite run`: the command's environment, its exit status, its signals, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration

RUN = [sys.executable, "-m", "kafkalite", "run"]
DEADLINE_S = 120.0
KAFKALITE = f"{sys.executable} -m kafkalite"
DESCRIBE = f'{KAFKALITE} topics describe --bootstrap-server "$BOOTSTRAP_SERVERS"'
CONFIGS = f'{KAFKALITE} configs describe --bootstrap-server "$KAFKA_BOOTSTRAP_SERVERS" topic'
WAIT = """
import signal, sys, pathlib
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
assert not signal.pthread_sigmask(signal.SIG_BLOCK, numbers), "signals are blocked"
pathlib.Path(sys.argv[1]).write_text("ready")
print(signal.Signals(signal.sigwait(numbers)).name, flush=True)
sys.exit(3)
"""


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(directory)}


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    made = subprocess.run(
        [*RUN, *arguments], capture_output=True, text=True, env=environment(tmp_path), timeout=DEADLINE_S
    )
    assert list(tmp_path.glob("kafkalite-*")) == [], "the temporary directory stays"
    return made


def test_command_finds_the_broker_in_its_environment(tmp_path: Path) -> None:
    script = (
        "import os, socket\n"
        "servers = os.environ['KAFKA_BOOTSTRAP_SERVERS']\n"
        "assert os.environ['BOOTSTRAP_SERVERS'] == servers\n"
        "host, _, port = servers.rpartition(':')\n"
        "socket.create_connection((host, int(port)), timeout=60).close()\n"
        "print(sorted(name for name in os.environ if 'REGISTRY' in name))\n"
    )
    done = run(tmp_path, "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_topics_are_there_and_settings_hold(tmp_path: Path) -> None:
    shell = f"{DESCRIBE} orders; {CONFIGS} orders"
    done = run(tmp_path, "--topic", "orders:3", "--set", "log.retention.ms=1234", "--", "sh", "-c", shell)
    assert done.returncode == 0, done.stderr
    assert "3 partitions" in done.stdout
    assert "1234" in done.stdout


def test_registry_is_in_the_environment(tmp_path: Path) -> None:
    script = (
        "import os, urllib.request\n"
        "print(urllib.request.urlopen(os.environ['SCHEMA_REGISTRY_URL'] + '/subjects', timeout=60).read())"
    )
    done = run(tmp_path, "--registry", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (0, "b'[]'\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        pytest.param(["sh", "-c", "exit 7"], 7, "", id="its own status"),
        pytest.param(["sh", "-c", "kill -9 $$"], 137, "", id="ended by a signal"),
        pytest.param(["no-such-command"], 127, "kafkalite: command not found: no-such-command\n", id="not there"),
        pytest.param(["/"], 126, "kafkalite: cannot run /: Permission denied\n", id="no program"),
    ],
)
def test_exit_status_is_the_commands(tmp_path: Path, command: list[str], status: int, said: str) -> None:
    done = run(tmp_path, "--", *command)
    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: CMD (see kafkalite run --help)"),
        (["--topic", "a:0", "--", "true"], "--topic a:0: expected NAME or NAME:PARTITIONS"),
        (["--set", "no.such=1", "--", "true"], "no.such: unknown setting"),
        (["--listeners", "kafka://192.0.2.1:0", "--", "true"], "cannot listen on 192.0.2.1:0"),
    ],
)
def test_what_it_cannot_begin_with(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"kafkalite: {said}")
    assert done.stderr.count("\n") == 1


def test_arguments_of_the_command_are_its_own(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "sh", "-c", 'printf "%s|" "$@"', "x", "--topic", "--", "-q", "a b")
    assert done.stdout == "--topic|--|-q|a b|"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_go_to_the_command(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    started = subprocess.Popen(
        [*RUN, "--", sys.executable, "-c", WAIT, str(ready)],
        stdout=subprocess.PIPE, text=True, env=environment(tmp_path),
    )  # fmt: skip
    try:
        wait_until(ready.exists, DEADLINE_S, "the command runs")
        started.send_signal(number)
        out, _ = started.communicate(timeout=DEADLINE_S)
    finally:
        started.kill()
        started.wait()
    assert (started.returncode, out) == (3, f"{number.name}\n")
    assert list(tmp_path.glob("kafkalite-*")) == []


@pytest.mark.slow
def test_data_that_is_to_stay_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):  # the second time the topic is there already
        done = run(tmp_path, "--data-dir", str(data), "--topic", "kept:2", "--", "true")
        assert done.returncode == 0, done.stderr
    assert "2 partitions" in run(tmp_path, "--data-dir", str(data), "--", "sh", "-c", f"{DESCRIBE} kept").stdout
