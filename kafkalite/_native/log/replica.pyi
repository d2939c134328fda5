from kafkalite._native.log.log_core import LogCore
from kafkalite._native.log.segment import Segment

FOLLOW_DONE: int
FOLLOW_CORRUPT: int
FOLLOW_OLD_FORMAT: int
FOLLOW_OUT_OF_ORDER: int
FOLLOW_UNEXPECTED: int
FOLLOW_FAILED: int
FOLLOW_STALE: int
FOLLOWS_NOBODY: int
FOLLOWS_ANYBODY: int

class Replica:
    log: LogCore
    last_epoch: int
    follows: int
    def __init__(self, log: LogCore) -> None: ...
    def append(
        self, records: bytes | bytearray | memoryview, leader_epoch: int, high_watermark: int = -1
    ) -> tuple[int, int, int, int, int]: ...
    def lower(self, offset: int) -> None: ...
    def publish_cut(
        self,
        segments: tuple[Segment, ...],
        log_start: int,
        log_end: int,
        *,
        unpinned: Segment | None = None,
        is_restart: bool = False,
    ) -> bool: ...

def epoch_starts(segment: Segment, position: int, end: int, epoch: int) -> list[tuple[int, int]]: ...
