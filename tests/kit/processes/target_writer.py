"""Publishes changes without Spark until it is killed: `python -m tests.kit.processes.target_writer TARGET [steps]`.

Each change continues where the manifests end, with records of two partitions and two hours, as a load's would; now and
then it compacts. With `steps` it dies at each step of two changes and a compaction (tests.kit.processes.dying).
"""

import functools
import sys

from kafkalite.load.compaction import compact
from kafkalite.load.manifest import Target
from kafkalite.load.places import storage_of
from kafkalite.load.storage import Storage
from kafkalite.model import TopicPartition
from tests.kit.fakes.dying_storage import DyingStorage
from tests.kit.harness.load_target import add
from tests.kit.processes.dying import serve

RECORDS = 20
COMPACT_EVERY = 7


def main(path: str) -> None:
    for number in range(sys.maxsize):
        publish(path, number)
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            compact(path)


def publish(path: str | Storage, number: int) -> None:
    """A change for each of two partitions."""
    state = Target(path).refresh()
    for partition in range(2):
        first = state.positions.get(TopicPartition("t", partition), 0)
        add(path, range(first, first + RECORDS), hour=number % 2, partition=partition)


def end_at(path: str, step: int) -> None:
    """See the module."""
    storage = DyingStorage(storage_of(path), step)
    publish(storage, step)
    compact(storage)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(functools.partial(end_at, sys.argv[1]))
    else:
        main(sys.argv[1])
