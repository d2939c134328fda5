"""franz-go: the newest version of every API, RequireStable in each OffsetFetch, and KIP-848 where it is asked for.

Slow for its build: the generated messages of its protocol take a minute and a half the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import go_checks
from tests.compat.records import CODECS, stored_codecs
from tests.compat.transactions import check_committed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def check(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., None]:
    return go_checks.program("franz_go", "franz-go", bootstrap, not_run)


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(("codec", "acks"), go_checks.CODECS_AND_ACKS)
def test_produce_reads_back_with_its_codec(
    check: Callable[..., None], port: int, topic: str, codec: str, acks: str
) -> None:
    check("codec", topic, f"{codec}/{acks}")
    assert stored_codecs(port, topic) == {CODECS[codec]}


@pytest.mark.parametrize("name", go_checks.PARAMETERS)
def test_check(check: Callable[..., None], topic: str, name: str) -> None:
    check(name, topic)


@pytest.mark.capability("transactions")
def test_transaction(check: Callable[..., None], bootstrap: str, topic: str) -> None:
    check("transaction", topic)
    check_committed(bootstrap, topic)


@pytest.mark.capability("KIP-848")
def test_next_group(check: Callable[..., None], topic: str) -> None:
    check("group", topic, "next")
