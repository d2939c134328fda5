"""A broker that goes back to a backup, and the records of both histories."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kafkalite.broker.backup import back_up, restore
from kafkalite.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.processes.broker import BrokerProcess

READY_S = 60


def numbers(first: int, end: int, what: str = "old") -> list[bytes]:
    """`old 0`, `old 1`, …"""
    return [b"%s %d" % (what.encode(), number) for number in range(first, end)]


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """To partition 0 of a topic, which is created if it does not exist."""
    with Client(bootstrap, retry_timeout_s=READY_S) as client:
        if not client.partition_counts([topic]):
            client.admin.create_topic(topic, 1)
        client.produce(topic, 0, values)


def put_back(live: BrokerProcess, saved: Path) -> None:
    """Runs the broker on its backup."""
    live.kill()
    shutil.rmtree(live.data_dir)
    restore(str(saved), str(live.data_dir))
    live.start()


def grow_after_backup(live: BrokerProcess, topic: str, saved: Path, *, same_epoch: bool = False) -> None:
    """A topic with `old 0` to `old 149`, of which the backup `saved` has the first 100.

    With `same_epoch` a restored broker writes in the leader epoch of the 50 records that it does not have.
    """
    produce(live.bootstrap, topic, numbers(0, 100))
    back_up(str(live.data_dir), str(saved))
    if same_epoch:
        live.kill()
        live.start()
    produce(live.bootstrap, topic, numbers(100, 150))
