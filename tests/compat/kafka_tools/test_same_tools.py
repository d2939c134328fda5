"""Apache Kafka's tools end on kafkalite as on Apache Kafka of one node: every call of `calls.py`, on both.

Slow: Kafka takes seconds to start, and the calls two minutes. A few of them run always, on kafkalite alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.compat.kafka_tools import side_by_side
from tests.compat.kafka_tools.calls import MAIN_CLASSES, NOT_CALLED, STORY
from tests.compat.kafka_tools.one_jvm.runner import ToolRunner
from tests.kit.processes.apache_kafka import NotAvailable, jars

if TYPE_CHECKING:
    from pathlib import Path

TESTED = re.compile(r"Tested, with (\d+) calls in all: ([^.]+)\.")


@pytest.fixture(autouse=True)
def _tools(not_run) -> None:
    try:
        jars()
    except NotAvailable as missing:
        not_run("Apache Kafka's tools", str(missing))


@pytest.mark.slow
def test_every_call_ends_as_on_apache_kafka(tmp_path: Path) -> None:
    compared = list(side_by_side.compare(STORY, tmp_path))
    found = [f"{one.call.tool} {' '.join(one.call.arguments)}: {text}" for one in compared for text in one.differences]
    assert not found, "\n".join(found)
    assert side_by_side.page(compared) == side_by_side.PAGE.read_text(encoding="utf-8")


def test_the_page_lists_every_tool() -> None:
    text = side_by_side.PAGE.read_text(encoding="utf-8")
    ((count, tools),) = TESTED.findall(text)
    assert {*re.findall(r"`([^`]+)`", tools)} == MAIN_CLASSES.keys()
    assert int(count) == len(STORY)
    assert all(names in text for names in NOT_CALLED)


def test_a_few_tools_in_one_jvm(bootstrap: str, tmp_path: Path) -> None:
    wanted = {
        ("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"): (0, ""),
        ("kafka-reassign-partitions", "--list"): (0, "No partition reassignments found."),
        ("kafka-features", "upgrade", "--feature", "group.version=9"): (1, ""),
        ("kafka-metadata-quorum", "describe", "--status"): (0, "LeaderId: 1"),
    }
    with ToolRunner(tmp_path) as runner:
        for (tool, *arguments), (status, text) in wanted.items():
            ended = runner.run(MAIN_CLASSES[tool], "--bootstrap-server", bootstrap, *arguments)
            assert (ended.status, text in " ".join(ended.out.split())) == (status, True), ended
