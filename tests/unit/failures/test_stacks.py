"""The stack of a failure as Python prints it, whether its lines were looked up before or not."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from kafkalite.failures import calls
from kafkalite.failures.calls import Caller, stack_text
from kafkalite.failures.events import Message
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryHere


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("says nothing")


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ValueError(f"at {depth}")


def caused() -> None:
    try:
        deep(1)
    except ValueError as error:
        raise KeyError("from it") from error


def contextual() -> None:
    try:
        deep(1)
    finally:
        raise KeyError("beside it")


def noted() -> None:
    error = ValueError("two\nlines")
    error.add_note("and a note")
    raise error


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])


def broken() -> None:
    compile("a b", "there", "exec")


def odd() -> None:
    raise Odd


def one_line(first: int, second: int) -> float:
    return 1 / first + 1 / second


@pytest.mark.parametrize(
    "fails",
    [
        *(lambda: deep(0), lambda: deep(3), lambda: deep(200)),
        *(lambda: one_line(0, 1), lambda: one_line(1, 0)),
        *(caused, contextual, noted, grouped, broken, odd),
    ],
)
def test_it_is_what_python_prints_each_time(fails: Callable[[], object]) -> None:
    for _ in range(3):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever it is
            fails()
        assert stack_text(caught.value) == "".join(traceback.format_exception(caught.value))


def test_an_error_whose_text_raises_is_a_failure_like_others() -> None:
    """A worker that it went through would end, and its member would wait for it."""

    def handle(record: Message) -> None:
        raise Odd

    call = Caller(Policy(group="g", topics=["orders"], strategy=RetryHere(1)), handle)
    failure = call(Message("orders", 0, 0, 0, None, None)).failure
    assert failure is not None
    assert (failure.name, failure.text) == (f"{__name__}.Odd", "<exception str() failed>")


def test_an_error_that_nobody_raised_has_no_lines() -> None:
    error = ValueError("x")
    assert stack_text(error) == "".join(traceback.format_exception(error))


def test_only_so_many_ways_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STACKS_MAX", 5)
    for number in range(20):
        with pytest.raises(ValueError, match="at 0") as caught:
            deep(number)
        stack_text(caught.value)
        assert len(calls._stacks) <= 5 or number == 0
