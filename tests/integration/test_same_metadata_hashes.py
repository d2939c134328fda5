"""Kafka's own code hashes topics with random names, partitions and racks, and so does ours: equal, in each release.

Slow: Java compiles the program at each start.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from kafkalite.broker.coordinator.metadata_hash import group_hash, topic_hash
from tests.kit.oracles.metadata_hashes import CASES, GROUP_HASH, RACKS, TopicCase
from tests.kit.processes.apache_kafka import NotAvailable, jars

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RELEASES = ("4.1.0", "4.4.0")
TOPICS = 60


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    """The folder with the jars of a release."""
    try:
        return jars(request.param)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {request.param}: {missing}")


def hashed_by_kafka(release: Path, topics: list[TopicCase]) -> list[int]:
    """The hash of each topic, and of a group that reads all of them."""
    lines = [f"broker\t{node}" + ("" if rack is None else f"\t{rack}") for node, rack in RACKS.items()]
    for topic in topics:
        replicas = [",".join(map(str, nodes)) for nodes in topic.replicas]
        lines.append("\t".join(["topic", topic.name, topic.id.hex(), *replicas]))
    program = Path(__file__).with_name("MetadataHashes.java")
    command = ["java", "-Xmx256m", "-cp", f"{release}/*", str(program)]
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return [int(word) for word in done.stdout.split()]


def test_captured_hashes_are_those_of_a_release(release: Path) -> None:
    assert hashed_by_kafka(release, CASES) == [*(case.hash for case in CASES), GROUP_HASH]


def test_random_topics_have_the_hashes_of_a_release(release: Path) -> None:
    chance = random.Random(1)
    topics = []
    for number in range(TOPICS):
        name = f"{number:03}" + "".join(chance.choices("ab-_.é日😀", k=chance.randint(0, 60)))
        count = chance.choice((1, 2, 3, 10, 100, 500))
        replicas = [chance.sample([*RACKS, 9], chance.randint(1, 5)) for _ in range(count)]
        topics.append(TopicCase(name, chance.randbytes(16), replicas, 0))
    ours = [topic_hash(topic.name, topic.id, topic.racks) for topic in topics]
    assert hashed_by_kafka(release, topics) == [*ours, group_hash(ours)]
