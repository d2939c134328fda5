"""Look up stored formats by their name in the topic setting `message.format`.

A format is a native object (`_native.log.record_format`): it validates appends, parses one stored item for walks and
look-ups, and computes offsets. Each format has a log class for its other differences.
"""

from __future__ import annotations

from typing import Final

from kafkalite._native.classic.classic_log import classic
from kafkalite._native.log.record_format import RecordFormat, v2
from kafkalite.broker.log.classic.log import ClassicLog
from kafkalite.broker.log.partition_log import PartitionLog

FORMATS: Final[dict[str, RecordFormat]] = {v2.name: v2, classic.name: classic}
LOGS: Final[dict[str, type[PartitionLog]]] = {v2.name: PartitionLog, classic.name: ClassicLog}


def format_named(name: str) -> RecordFormat:
    """Return the format of that name; KeyError if this release does not have it."""
    return FORMATS[name]
