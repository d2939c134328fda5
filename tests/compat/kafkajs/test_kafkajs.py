"""KafkaJS 2.2.4: produce, groups (it can only consume in one), admin. Fetched with npm into build/compat."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import node_checks, toolchains
from tests.compat.doors import DoorChecks
from tests.compat.node_checks import Check, NodeChecks, numbered
from tests.compat.records import CODECS, Row, read_back, stored_codecs


@pytest.fixture(scope="module")
def check(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Check:
    return node_checks.program("kafkajs", "kafkajs", toolchains.any_node, bootstrap, not_run)


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(("codec", "acks"), [("none", "1"), ("none", "0"), ("gzip", "-1"), ("gzip", "0")])
def test_produce_reads_back_with_its_codec(check: Check, bootstrap: str, topic: str, codec: str, acks: str) -> None:
    """KafkaJS has gzip built in; its other codecs are plug-ins of third parties."""
    check("codec", topic, f"{codec}/{acks}")
    assert read_back(bootstrap, topic, 200) == numbered(200)
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


class TestKafkaJs(NodeChecks):
    EDGES = (
        Row(b"key", b"value"),
        Row(None, b"no key"),
        Row(b"no value", None),
        Row(b"", b""),
        Row(b"headers", b"v", (("same", b"1"), ("same", b"2"), ("one", b"x"))),
        Row(b"large", b"l" * (1 << 20)),
    )


@pytest.mark.slow
class TestDoors(DoorChecks):
    """TLS is Node's, SASL its own."""
