"""Clients that have one fetch at a broker at a time ask it to keep none for long, unless they are configured to."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.failures.adapters import aio, confluent
from kafkalite.failures.adapters.listening import FETCH_WAIT_MS


class Given(Exception):
    """The configuration that a consumer is made with."""


def consumer(config: dict[str, Any] | None = None, **options: Any) -> None:
    raise Given({**(config or {}), **options})


@pytest.mark.parametrize(
    ("module", "name", "port", "option"),
    [
        (confluent, "Consumer", lambda given: confluent.ConfluentPort(given, "an-id"), "fetch.wait.max.ms"),
        (aio, "AIOKafkaConsumer", aio.AioPort, "fetch_max_wait_ms"),
    ],
)
@pytest.mark.parametrize(("given", "expected"), [(None, FETCH_WAIT_MS), (7, 7)])
def test_fetches_return_soon_unless_the_caller_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, port: Any, option: str, given: int | None, expected: int
) -> None:
    monkeypatch.setattr(module, name, consumer)
    one = port({} if given is None else {option: given})
    with pytest.raises(Given) as found:
        one.open("billing", ["orders"], *[lambda _: None] * 3)
    one.close()
    assert found.value.args[0][option] == expected
