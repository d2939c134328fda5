"""A session's error message without Java. Nothing here needs PySpark."""

import logging
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalite.spark import session


def test_java_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no Java found"):
        session.require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"JAVA_HOME is .*, which has no bin/java"):
        session.require_java()


def test_java_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    session.require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(java.parent))
    session.require_java()


class Gateway:
    """A session whose Java process is this one."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self._gateway = SimpleNamespace(proc=process)
        self.sparkContext = self


class Py4JNetworkError(Exception):
    """What py4j raises, by its name."""


class Py4JError(Exception):
    """What py4j raises where a call had no answer, or was refused."""


def test_how_a_java_process_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "JAVA_END_S", 0.0)
    killed = subprocess.Popen(["sh", "-c", "kill -9 $$"])
    ended = subprocess.Popen(["sh", "-c", "exit 52"])
    runs = subprocess.Popen(["sleep", "600"])
    try:
        killed.wait()
        ended.wait()
        lost = Py4JNetworkError("Answer from Java side is empty")
        assert session.java_loss(Gateway(killed), lost) == "Spark's Java process was killed by SIGKILL"
        assert (
            session.java_loss(Gateway(ended), ConnectionRefusedError()) == "Spark's Java process ended with status 52"
        )
        unanswered = Py4JError("An error occurred while calling o34.load")
        assert session.java_loss(Gateway(killed), unanswered) == "Spark's Java process was killed by SIGKILL"
        assert session.java_loss(Gateway(runs), unanswered) is None, "Java refused the call"
        said = "the connection to Spark's Java process was lost: Answer from Java side is empty"
        assert session.java_loss(Gateway(runs), lost) == session.java_loss(Gateway(None), lost) == said
        assert session.java_loss(Gateway(runs), ConnectionResetError()) is None, "of something else"
        assert session.java_loss(Gateway(killed), ValueError("x")) is None
    finally:
        runs.kill()
        runs.wait()


def test_traces_of_py4j_are_dropped_and_other_records_are_not() -> None:
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "Exception while sending command.", None, None)

    assert not session.is_not_py4js(record("/x/site-packages/py4j/java_gateway.py"))
    assert session.is_not_py4js(record("/x/site-packages/pyspark/sql/session.py"))
    assert session.is_not_py4js(record("/x/py4j/program/transform.py"))


def test_an_empty_java_home_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As to Spark's own scripts."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no Java found"):
        session.require_java()
