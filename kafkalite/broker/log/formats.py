"""Look up a record format by its name in the topic setting `message.format`: Kafka's current format or Kafka 0.7's.

A format is a native object (`_native.log.record_format`). It validates appends, parses a stored batch or message, and
computes offsets. Each format also has its own class of logs.
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
    """Return the format with this name; KeyError if this release has no such format."""
    return FORMATS[name]
