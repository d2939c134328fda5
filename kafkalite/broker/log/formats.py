"""The stored formats by the name that the topic setting `message.format` gives them.

A format is a native object (`_native.log.record_format`): it validates an append, parses one stored item for walks and
look-ups, and places offsets. With it comes the class of log that knows what else differs.
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
    """The format of that name; KeyError for one this release does not have."""
    return FORMATS[name]
