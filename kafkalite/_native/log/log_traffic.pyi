from collections.abc import Iterable
from typing import TypeAlias

from kafkalite._native.log.log_core import LogCore

TrafficCounts: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

def sum_traffic(logs: Iterable[LogCore]) -> TrafficCounts: ...
