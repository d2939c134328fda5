"""Which looks at a live topic wait, and when their wait ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.console import tailing
from kafkalite.console.audit import Audit
from kafkalite.console.console_state import WAITING_MAX, ConsoleState
from kafkalite.model import TopicPartition

KEY = TopicPartition("t", 0)


@pytest.fixture
def request_of_nobody() -> Any:
    return SimpleNamespace(bench=SimpleNamespace(desk=ConsoleState(None, Audit())))  # type: ignore[arg-type]


def test_a_look_waits_until_something_comes(request_of_nobody: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{KEY: 5}, {KEY: 5}, {KEY: 6}])
    monkeypatch.setattr(tailing, "WAIT_S", 1e9)
    monkeypatch.setattr(tailing, "ends_of", lambda *_: next(answers))
    ends = {KEY: 5}
    assert tailing.wait(None, request_of_nobody, {KEY: 5}, ends)  # type: ignore[arg-type]
    assert ends == {KEY: 6}


def test_a_look_does_not_wait_where_as_many_do_as_may(request_of_nobody: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "WAIT_S", 1e9)
    waiting = request_of_nobody.bench.desk.waiting
    for _ in range(WAITING_MAX):
        assert waiting.acquire(blocking=False)
    assert not tailing.wait(None, request_of_nobody, {KEY: 5}, {KEY: 5})  # type: ignore[arg-type]
    waiting.release()
    monkeypatch.setattr(tailing, "ends_of", lambda *_: {KEY: 6})
    for _ in range(3):  # a place is given back each time
        assert tailing.wait(None, request_of_nobody, {KEY: 5}, {KEY: 5})  # type: ignore[arg-type]


def test_a_broken_wait_gives_its_place_back(request_of_nobody: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "WAIT_S", 1e9)

    def lost(*_: Any) -> Any:
        raise OSError

    monkeypatch.setattr(tailing, "ends_of", lost)
    for _ in range(WAITING_MAX + 1):
        with pytest.raises(OSError):  # noqa: PT011  # any
            tailing.wait(None, request_of_nobody, {KEY: 5}, {KEY: 5})  # type: ignore[arg-type]
