from collections.abc import Mapping

from typing_extensions import Buffer

from kafkalite._native.key_map import KeyMap
from kafkalite._native.scan import BatchHeaderDict
from kafkalite._native.segment import Segment

END: int
BATCH_SPECIAL: int
MAP_FULL: int
DAMAGED: int
PAUSE: int

JUDGED_EMPTY: int
JUDGED_UNCHANGED: int
JUDGED_CHANGED: int
JUDGED_MALFORMED: int

def index_batches(
    keys: KeyMap, segment: Segment, position: int, end: int, start_offset: int
) -> tuple[int, int, int]: ...
def index_records(keys: KeyMap, segment: Segment, position: int, records: Buffer, start_offset: int) -> int: ...
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
    ) -> None: ...
    def run(self, segment: Segment, position: int, end: int, out_max: int) -> tuple[int, int]: ...
    def judge(self, segment: Segment, position: int, records: Buffer, *, keep_all: bool = False) -> int: ...
    def kept_records(self, segment: Segment, position: int, *, marker: bool = False) -> tuple[bytes, bool]: ...
    def append(self, segment: Segment, position: int, block: Buffer, horizon: bool) -> None: ...
    def copy(self, segment: Segment, position: int, size: int) -> None: ...
    def drop_records(self, segment: Segment, position: int) -> None: ...
    def write(self, fd: int, position: int) -> int: ...
