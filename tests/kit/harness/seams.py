"""The seams of a whole process, swapped for a test that has the process for itself.

    with seams.disk_instead(disk):      another file system
    with seams.drawn_from(source):      what is drawn by lot
    seams.arm(kinds, after=..., ...)    calls on files that fail, until `file_ops.disarm`

tests/test_seams.py keeps tests from swapping round these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite._native.base import file_ops
from kafkalite.base import randomness
from kafkalite.broker.log import disk
from tests.kit.harness.own_process import assert_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager


def disk_instead(other: disk.Disk) -> AbstractContextManager[None]:
    """Replace the disk, as kafkalite.broker.log.disk.instead does; no broker thread may run meanwhile, since it would
    use that disk.
    """
    assert_alone(threads=False)
    return disk.instead(other)


def drawn_from(source: Callable[[int], bytes]) -> AbstractContextManager[None]:
    """As kafkalite.base.randomness.drawn_from; another thread would take what the seed gives to this one."""
    assert_alone(threads=False)
    return randomness.drawn_from(source)


def arm(kinds: Iterable[str], *, after: int, error: int, sticky: bool = False, written: int = 0) -> None:
    """As file_ops.arm: every call of the process counts, so all of them must be the test's own."""
    assert_alone()
    file_ops.arm(kinds, after=after, error=error, sticky=sticky, written=written)
