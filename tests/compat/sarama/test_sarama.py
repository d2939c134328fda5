"""sarama: Produce 9, Fetch 12 without sessions, classic groups, transactions of the classic protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import go_checks
from tests.compat.doors import DoorChecks
from tests.compat.go_checks import Check, GoChecks


@pytest.fixture(scope="module")
def check(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Check:
    return go_checks.program("sarama", "sarama", bootstrap, not_run)


class TestSarama(GoChecks):
    """All of its tests are those of any Go client."""


@pytest.mark.slow
class TestDoors(DoorChecks):
    """Its SCRAM is that of another library, which its users have to bring."""
