"""Parts of the example pipeline as processes: what fails is quoted, and nothing is left running."""

import os
import sys
import time
from pathlib import Path

import pytest

from kafkalite.base.extras import needs_extra
from kafkalite.examples.pipeline import processes
from kafkalite.examples.pipeline.__main__ import main, new_folder
from kafkalite.examples.pipeline.processes import PartFailed, Parts
from kafkalite.examples.pipeline.run import Killer, Plan, is_over, windows_are_closed
from tests.kit.processes.broker import wait_until

DEADLINE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules for `python -m` are found too."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def parts_in(folder: Path) -> Parts:
    return Parts(folder, time.monotonic() + DEADLINE_S)


def is_running(process: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_output_of_a_part_that_has_ended_is_its_result(folder: Path) -> None:
    (folder / "answers.py").write_text("print('42')\nraise SystemExit(1)\n")
    with parts_in(folder) as parts:
        assert parts.result(parts.start("one", "answers"), statuses=(0, 1)) == "42\n"
        with pytest.raises(PartFailed, match=r"two ended with status 1:\n42"):
            parts.result(parts.start("two", "answers"))


def test_a_part_that_fails_while_another_is_waited_for_is_quoted(folder: Path) -> None:
    (folder / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    with parts_in(folder) as parts:
        parts.start("bad", "no_such_module")
        waited = parts.start("good", "sleeps")
        with pytest.raises(PartFailed, match=r"(?s)bad ended with status 1:.*No module named no_such_module"):
            parts.result(waited)


def test_time_is_over_at_the_deadline(folder: Path) -> None:
    with Parts(folder, time.monotonic()) as parts, pytest.raises(PartFailed, match="timed out before the day"):
        parts.wait_for(lambda: False, "the day")


def test_what_a_part_started_ends_with_it_whatever_it_thinks_of_signals(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_TIMEOUT_S", 0.05)
    (folder / "stubborn.py").write_text(
        "import os, pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "ready = pathlib.Path(sys.argv[sys.argv.index('--ready-file') + 1])\n"
        "ready.with_suffix('.tmp').write_text(f'{os.getpid()} {child.pid}')\n"
        "ready.with_suffix('.tmp').rename(ready)\n"
        "time.sleep(600)\n"
    )
    with parts_in(folder) as parts:
        both = [int(text) for text in parts.start_server("stubborn", "stubborn").split()]
        assert all(is_running(process) for process in both)
    wait_until(lambda: not any(is_running(process) for process in both), DEADLINE_S, "both are gone")


def test_a_killed_part_runs_again_with_its_arguments_and_is_awaited(folder: Path) -> None:
    (folder / "server.py").write_text(
        "import os, pathlib, sys, time\n"
        "ready = pathlib.Path(sys.argv[sys.argv.index('--ready-file') + 1])\n"
        "print(sys.argv[-1], flush=True)\n"
        "ready.with_suffix('.tmp').write_text(f'{os.getpid()} {sys.argv[-1]}')\n"
        "ready.with_suffix('.tmp').rename(ready)\n"
        "time.sleep(600)\n"
    )
    with parts_in(folder) as parts:
        first = int(parts.start_server("server", "server").split()[0])
        restarted, kill = parts.kill_and_restart("server", "--again")
        second, last = (folder / "server.ready").read_text().split()
        assert (int(second), last) == (restarted.process.pid, "--again")
        assert not is_running(first)
        assert is_running(int(second))
        assert restarted.output.read_text() == "--again\n", "the result is that of the new process"
        assert kill.back_s is not None
        assert kill.killed_s <= kill.back_s
    assert not is_running(int(second))


def test_a_run_without_kills_does_not_wait_for_visits(folder: Path) -> None:
    with parts_in(folder) as parts:
        killer = Killer(parts, "127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3", print)
        killer.kill_while_sending(Plan(folder))
        assert killer.kills == []


def test_a_duration_is_over_after_it() -> None:
    assert is_over(0)()
    assert not is_over(100)()


def test_windows_close_at_their_end() -> None:
    now = time.time()
    assert windows_are_closed(now - 100)()
    assert not windows_are_closed(now + 100)()


def test_a_run_does_not_begin_where_something_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        new_folder(tmp_path)
    made = new_folder(tmp_path / "new" / "one")
    assert os.listdir(made) == []
    with pytest.raises(SystemExit) as ended:
        main(["--rate", "0"])
    assert ended.value.args == (2,)
    assert "'0' is not a number above 0" in capsys.readouterr().err


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pyarrow", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: sys.modules.get(name, name))
    assert main([]) == 2
    assert needs_extra("the pipeline needs pyarrow and pyspark", "pipeline") in capsys.readouterr().err
