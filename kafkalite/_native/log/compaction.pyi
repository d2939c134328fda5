from collections.abc import Callable, Mapping
from typing import TypeAlias

from typing_extensions import Buffer

from kafkalite._native.log.key_map import KeyMap
from kafkalite._native.log.scan import BatchHeaderDict
from kafkalite._native.log.segment import Segment

END: int
BATCH_MARKER: int
MAP_FULL: int
DAMAGED: int
PAUSE: int

Unpack: TypeAlias = Callable[[int, memoryview, int], Buffer | None]
Pack: TypeAlias = Callable[[int, memoryview], Buffer]

def index_batches(
    keys: KeyMap,
    segment: Segment,
    position: int,
    end: int,
    *,
    start_offset: int,
    upper: int,
    aborted: Buffer,
    unpack: Unpack,
) -> tuple[int, int, int]: ...
def transaction_batches(segment: Segment, position: int) -> tuple[list[BatchHeaderDict], bool, int]: ...
def marker_type(segment: Segment, position: int) -> int: ...

class BatchFilter:
    keys: KeyMap
    horizon_ms: int
    retain_end: int
    may_forget: bool
    out_size: int
    record_count: int
    kept_count: int
    superseded_count: int
    forgotten_count: int
    keyless_count: int
    malformed_count: int
    changed_count: int
    def __init__(
        self,
        keys: KeyMap,
        *,
        mapped_end: int,
        retain_end: int,
        now_ms: int,
        delete_retention_ms: int,
        producers: Mapping[int, int],
        aborted: Buffer,
        unpack: Unpack,
        pack: Pack,
    ) -> None: ...
    def run(self, segment: Segment, position: int, end: int, out_max: int) -> tuple[int, int]: ...
    def copy(self, segment: Segment, position: int) -> None: ...
    def postpone(self, segment: Segment, position: int) -> None: ...
    def drop(self, segment: Segment, position: int) -> None: ...
    def write(self, fd: int, position: int) -> int: ...
