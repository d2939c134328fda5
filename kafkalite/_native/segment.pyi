from types import TracebackType

from kafkalite._native.index import SegmentIndex
from kafkalite._native.record_format import RecordFormat

class FileCache:
    open_max: int
    open_count: int
    def __init__(self, open_max: int) -> None: ...

class Segment:
    directory: str
    base_offset: int
    size: int
    flushed_size: int
    indexed_size: int
    created_ms: int
    max_timestamp: int
    max_timestamp_offset: int
    last_position: int
    sealed: bool
    deleted: bool
    has_file: bool
    index: SegmentIndex | None
    damage: tuple[tuple[int, int, int, int], ...] | None
    format: RecordFormat
    pins: int
    def __init__(
        self,
        cache: FileCache,
        format: RecordFormat,  # noqa: A002
        directory: str,
        base_offset: int,
        *,
        map_reserve: int,
        size: int = -1,
    ) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def descriptor(self) -> int: ...
    @property
    def unverified(self) -> int: ...
    def close(self) -> None: ...
    def create_file(self, created_ms: int) -> None: ...
    def sync(self) -> None: ...
    def trim(self) -> None: ...
    def mark_sealed(self) -> None: ...
    def mark_deleted(self) -> None: ...
    def cut(self, size: int) -> None: ...
    def set_index(
        self,
        index: SegmentIndex,
        *,
        bytes_since_entry: int,
        max_timestamp: int,
        max_timestamp_offset: int,
        last_position: int,
    ) -> None: ...
    def set_summary(
        self, max_timestamp: int, max_timestamp_offset: int, last_position: int
    ) -> None: ...
    def set_flushed(self, size: int) -> None: ...
    def set_verified_from(self, position: int) -> None: ...
    def unverified_granules(
        self, position: int, end: int
    ) -> list[tuple[int, int, int, int, int]]: ...
    def mark_verified(self, granule: int) -> None: ...
    def add_damage(
        self, position: int, end: int, offset: int, next_offset: int
    ) -> None: ...
    def read_bytes(self, position: int, size: int) -> bytes: ...
