"""franz-go: the newest version of every API, RequireStable in each OffsetFetch, and KIP-848 where a check selects it.

Slow for its build: the generated messages of its protocol take a minute and a half the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import go_checks
from tests.compat.doors import DoorChecks
from tests.compat.go_checks import Check, GoChecks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def check(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Check:
    return go_checks.program("franz_go", "franz-go", bootstrap, not_run)


class TestFranzGo(GoChecks):
    @pytest.mark.capability("KIP-848")
    def test_next_group_shares_partitions_hands_over_and_keeps_offsets(self, check: Check, topic: str) -> None:
        check("group", topic, "next")


class TestDoors(DoorChecks):
    """Its SASL is its own."""
