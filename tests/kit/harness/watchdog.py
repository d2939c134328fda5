"""End the process of a test that no time limit ends: one that hangs outside Python sees no signal, so no time-out.

The watchdog prints the stacks of all threads; under xdist the run ends, and names the test.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

GRACE_S = 120  # for a test that ran into its limit and tidies up


class Watchdog:
    """A plugin; `limit_s` is the time limit of tests without a mark `timeout`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stderr = os.dup(2)  # a test's captured output is lost with its process

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watches one test with its fixtures."""
        mark = item.get_closest_marker("timeout")
        limit_s = mark.args[0] if mark is not None and mark.args else self._limit_s
        faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_unconfigure(self) -> None:
        """Closes what it holds."""
        os.close(self._stderr)
