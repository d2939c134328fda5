from typing import TypedDict

from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.producers import ProducerTable
from kafkalite._native.log.segment import Segment

class BatchHeaderDict(TypedDict):
    position: int
    size: int
    base_offset: int
    next_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    base_sequence: int
    last_offset_delta: int
    record_count: int
    leader_epoch: int
    crc: int
    producer_epoch: int
    attributes: int

class SegmentScan:
    segment: Segment
    position: int
    next_offset: int
    batch_count: int
    last_position: int
    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_entry: int
    index: SegmentIndex | None
    def __init__(
        self,
        segment: Segment,
        *,
        position: int = 0,
        next_offset: int = -1,
        index: SegmentIndex | None = None,
        index_interval: int = 0,
        bytes_since_entry: int = 0,
        producers: ProducerTable | None = None,
        producers_from: int = 0,
        max_timestamp: int = -1,
        max_timestamp_offset: int = -1,
        last_position: int = -1,
    ) -> None: ...
    def install(self, *, verified_from: int = ...) -> None: ...
    def run(
        self,
        end: int,
        *,
        verify: bool,
        contiguous_from: int = ...,
        offset_limit: int = ...,
    ) -> bool: ...
    def resync(self, end: int, *, offset_limit: int = ...) -> tuple[int, int] | None: ...
    def skip_to(self, position: int, next_offset: int) -> None: ...
    def first_bad_offset(self) -> int: ...

def batch_headers(segment: Segment, position: int, end: int, *, count_max: int = 1024) -> list[BatchHeaderDict]: ...
def header_at(segment: Segment, position: int) -> BatchHeaderDict | None: ...
