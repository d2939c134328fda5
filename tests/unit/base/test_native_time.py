"""The native clocks are those of `time`."""

from __future__ import annotations

import time

import pytest

from kafkalite._native.base import native_time


@pytest.mark.parametrize("name", ["monotonic", "perf_counter_ns", "time", "time_ns"])
def test_a_native_clock_is_between_two_looks_at_the_same_clock_of_time(name: str) -> None:
    slack = 0 if name.endswith("_ns") else 1e-6  # a float of seconds since 1970 is no finer
    before = getattr(time, name)()
    native = getattr(native_time, name)()
    after = getattr(time, name)()
    assert before - slack <= native <= after + slack
    assert type(native) is type(before)
