"""The one transaction scene that every client plays, and the neutral look at what it left.

A group reads ten records of a source topic. A first transaction writes `aborted-0` to `aborted-9` with the group's
offset 5 and is aborted; a second one writes `committed-0` to `committed-9` with the offset 10 and is committed.
"""

from __future__ import annotations

from tests.compat.records import committed_offset, values_to_end
from tests.kit.processes.broker import wait_until

COUNT = 10
TIMEOUT_S = 30
ABORTED = [f"aborted-{number}" for number in range(COUNT)]
COMMITTED = [f"committed-{number}" for number in range(COUNT)]


def source_of(topic: str) -> str:
    """The topic whose records are transformed."""
    return f"{topic}-source"


def group_of(topic: str) -> str:
    return f"group-{topic}"


def check_open(bootstrap: str, topic: str) -> None:
    """While the first transaction is open: its records are there, for those who want them."""
    assert values_to_end(bootstrap, topic, "read_uncommitted") == ABORTED
    assert values_to_end(bootstrap, topic, "read_committed") == []


def check_aborted(bootstrap: str, topic: str) -> None:
    assert values_to_end(bootstrap, topic, "read_committed") == []
    assert committed_offset(bootstrap, group_of(topic), source_of(topic)) is None


def check_committed(bootstrap: str, topic: str) -> None:
    """After both. A commit is answered once it is decided; its markers, which readers wait for, follow."""
    wait_until(
        lambda: values_to_end(bootstrap, topic, "read_committed") == COMMITTED, TIMEOUT_S, "what was committed, alone"
    )
    assert values_to_end(bootstrap, topic, "read_uncommitted") == ABORTED + COMMITTED
    wait_until(
        lambda: committed_offset(bootstrap, group_of(topic), source_of(topic)) == COUNT, TIMEOUT_S, "the group's offset"
    )
