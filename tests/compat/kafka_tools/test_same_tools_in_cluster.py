"""Apache Kafka's tools for moving partitions, electing leaders and raising levels do the same with three brokers of
this project, with two of them and one of Apache Kafka's, and with three of Apache Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.kafka_tools.cluster_story import Story
from tests.compat.kafka_tools.one_jvm.runner import ToolRunner
from tests.kit.processes.mixed_cluster import ALL_JAVA, ALL_OURS, MIXED, MixedCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first one plays it on Java, too


def told(directory: Path, kinds: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The story on brokers of these kinds."""
    directory.mkdir()
    with (
        MixedCluster(directory, kinds, format_options=("--release-version", "4.0")) as cluster,
        ToolRunner(directory) as runner,
    ):
        story = Story(cluster, directory, runner)
        story.play()
    return story.told


@pytest.fixture(scope="module")
def on_java(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str]]]:
    assert kafka_jars
    return told(tmp_path_factory.mktemp("java") / "cluster", ALL_JAVA)


@pytest.mark.parametrize("kinds", [ALL_OURS, MIXED], ids=["kafkalite", "mixed"])
def test_tools_end_as_on_three_brokers_of_kafkas(
    on_java: list[tuple[str, list[str]]], tmp_path: Path, kinds: Sequence[str]
) -> None:
    here = told(tmp_path / "cluster", kinds)
    assert [name for name, _ in here] == [name for name, _ in on_java]
    differing = {
        name: (there, lines) for (name, lines), (_, there) in zip(here, on_java, strict=True) if lines != there
    }
    assert not differing, "\n".join(f"{name}\n  there: {a}\n  here: {b}" for name, (a, b) in differing.items())
