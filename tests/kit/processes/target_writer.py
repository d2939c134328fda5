"""Publishes changes without Spark until it is killed: `python -m tests.kit.processes.target_writer TARGET`.

Each change goes on where the manifests end, with records of two partitions and two hours, as a load's would; now and
then it compacts.
"""

import sys
from pathlib import Path

from kafkalite.load.compaction import compact
from kafkalite.load.manifest import Target
from kafkalite.model import TopicPartition
from tests.kit.harness.load_target import add

RECORDS = 20
COMPACT_EVERY = 7


def main(path: Path) -> None:
    for number in range(sys.maxsize):
        state = Target(path).refresh()
        for partition in range(2):
            first = state.positions.get(TopicPartition("t", partition), 0)
            add(path, range(first, first + RECORDS), hour=number % 2, partition=partition)
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            compact(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
