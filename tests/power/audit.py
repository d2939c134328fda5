"""Answers beside durability: was what an answer promises on the disk when the broker sent it?

What an Op promises is found again in the trace by its token, in the first write below its place that holds it. At the
moment of the send that write must be covered by a sync that had ended, and so must each name that leads to the file:
POSIX's sense of durable, the strictest. No crash state has to be drawn for that, so that every answer is looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.power import trace
from tests.power.disk import Disk, Inode
from tests.power.history import NEVER, Op

if TYPE_CHECKING:
    from tests.power.recording import Recording

TOKEN = re.compile(rb"q(\d{8})q")
DERIVED = (".cleaned", ".swap", ".tmp", ".deleted")
"""Files with copies of what was written elsewhere first."""


@dataclass
class Audit:
    """How many answers were looked at, and which came too early."""

    count: int = 0
    gone: int = 0  # their file had been removed since, by retention, compaction or the topic's end
    early: list[str] = field(default_factory=list)


def audit(recording: Recording) -> Audit:
    """Looks at every answer of a recording that left a token."""
    waiting = sorted(
        (op for op in recording.history.every_op() if op.token >= 0 and op.answered < NEVER),
        key=lambda op: op.answered,
        reverse=True,
    )
    disk = Disk(recording.root)
    written: dict[int, list[tuple[int, Inode]]] = {}
    found = Audit()
    for record in recording.records:
        while waiting and waiting[-1].answered <= record.place:
            _judge(disk, waiting.pop(), written, found)
        disk.play(record)
        if record.kind == trace.WRITE and record.data:
            node = disk.opened(record)
            if not node.path.endswith(DERIVED):
                for digits in TOKEN.findall(record.data):
                    written.setdefault(int(digits), []).append((record.place, node))
    return found


def _judge(disk: Disk, op: Op, written: dict[int, list[tuple[int, Inode]]], found: Audit) -> None:
    found.count += 1
    own = [entry for entry in written.get(op.token, ()) if f"/{op.place}" in entry[1].path]
    if not own:
        found.early.append(f"nothing was written for {op}")
        return
    place, node = own[0]
    if not disk.is_named(node):
        found.gone += 1
    elif place >= node.synced:
        found.early.append(f"{node.path}: bytes written at {place} are durable up to {node.synced} alone, for {op}")
    elif not disk.is_durably_named(node):
        found.early.append(f"{node.path}: the name is not durable, for {op}")
