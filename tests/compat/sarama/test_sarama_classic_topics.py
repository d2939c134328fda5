"""sarama on a topic of Kafka 0.7's messages: it stops, commits and resumes at every one, wrappers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import go_checks
from tests.compat.classic_topics import OFFSETS, PAYLOADS, classic_broker, plant


@pytest.mark.slow  # as with kcat and librdkafka, which `make test` has
def test_resumed_at_every_message_where_it_committed(topic: str, not_run: Callable[[str, str], NoReturn]) -> None:
    rows = (f"{offset}:{payload.decode()}" for offset, payload in zip(OFFSETS, PAYLOADS, strict=True))
    with classic_broker() as broker:
        plant(broker, topic)
        go_checks.program("sarama", "sarama", broker.bootstrap_servers, not_run)("classic", topic, ",".join(rows))
