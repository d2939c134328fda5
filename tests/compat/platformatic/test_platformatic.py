"""@platformatic/kafka 2: the youngest client, on a separate Node where the machine's is too old for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat import node_checks, toolchains
from tests.compat.doors import DoorChecks
from tests.compat.node_checks import Check, NodeChecks, numbered
from tests.compat.records import CODECS, Row, read_back, stored_codecs
from tests.kit.harness.samples import sample


@pytest.fixture(scope="module")
def check(bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Check:
    return node_checks.program("platformatic", "@platformatic/kafka", toolchains.node, bootstrap, not_run)


@pytest.mark.capability("produce, consume")
@pytest.mark.parametrize(
    ("codec", "acks"),
    sample([("gzip", "-1"), ("none", "0"), ("none", "1"), ("snappy", "1"), ("lz4", "-1"), ("zstd", "0")], 1),
)
def test_produce_reads_back_with_its_codec(check: Check, bootstrap: str, topic: str, codec: str, acks: str) -> None:
    check("codec", topic, f"{codec}/{acks}")
    assert read_back(bootstrap, topic, 200) == numbered(200)
    assert stored_codecs(bootstrap, topic) == {CODECS[codec]}


class TestPlatformatic(NodeChecks):
    EDGES = (
        Row(b"key", b"value"),
        Row(None, b"no key"),
        Row(b"no value", None),
        Row(b"headers", b"v", (("one", b"x"), ("empty", b""))),
        Row(b"large", b"l" * (1 << 20)),
    )

    @pytest.mark.capability("KIP-848")
    def test_next_group_shares_partitions_hands_over_and_keeps_offsets(self, check: Check, topic: str) -> None:
        check("group", topic, "next")


@pytest.mark.slow
class TestDoors(DoorChecks):
    """TLS is Node's, SASL its own."""
