from collections.abc import Iterable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalite._native.wire.aborted_filter import AbortedFilter
from kafkalite._native.wire.batch import BatchInfo
from kafkalite._native.wire.needles import Needles

class ColumnLike(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def starts(self) -> NDArray[np.int64]: ...
    @property
    def ends(self) -> NDArray[np.int64]: ...
    @property
    def nulls(self) -> NDArray[np.uint8] | None: ...

class HeadersLike(Protocol):
    @property
    def record_starts(self) -> NDArray[np.int64]: ...
    @property
    def record_ends(self) -> NDArray[np.int64]: ...
    @property
    def keys(self) -> ColumnLike: ...
    @property
    def values(self) -> ColumnLike: ...

_RawColumn: TypeAlias = tuple[memoryview, NDArray[np.int64], NDArray[np.uint8] | None]

FIELDS: dict[str, int]

def encode_records(
    values: ColumnLike,
    keys: ColumnLike | None,
    timestamps: NDArray[np.int64] | None,
    timestamp: int,
    headers: HeadersLike | None,
    first: int,
    end: int,
    size_max: int,
) -> tuple[bytearray, int, int, int]: ...
def seal(
    draft: Buffer,
    *,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> None: ...
def adopt(batch: Buffer, *, transactional: bool, producer_id: int, producer_epoch: int, base_sequence: int) -> None: ...

class ColumnDoor: ...

def following_offset(buffer: Buffer, offset: int) -> int: ...
def last_mark(
    buffer: Buffer, offset: int, end: int = ...
) -> tuple[int, tuple[int, int, int], tuple[tuple[int, int], ...]]: ...
def wrapper_at(
    buffer: Buffer, position: int, *, check_crcs: bool
) -> tuple[int, int, int, int, int, int | None, int] | None: ...

class ColumnBuilder:
    count: int
    damaged_at: int
    seen_count: int
    marker_count: int
    aborted_count: int
    def __init__(self, fields: Iterable[str] | None = None, needles: Needles | None = None) -> None: ...
    @property
    def size(self) -> int: ...
    def add(self, info: BatchInfo, records: Buffer, first_offset: int = ..., end_offset: int = ...) -> int: ...
    def add_run(
        self,
        buffer: Buffer,
        position: int,
        offset: int,
        end_offset: int,
        *,
        check_crcs: bool,
        aborted: AbortedFilter | None = None,
        count_max: int = ...,
        size_max: int = ...,
    ) -> tuple[int, int]: ...
    def note_aborted(self, info: BatchInfo, offset: int, end_offset: int) -> None: ...
    def add_inner(
        self,
        inner: Buffer,
        wrapper_offset: int,
        *,
        magic: int,
        timestamp: int | None,
        first_offset: int,
        end_offset: int,
        check_crcs: bool,
    ) -> None: ...
    def take(
        self,
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.int64],
        _RawColumn,
        _RawColumn,
        tuple[NDArray[np.int64], _RawColumn, _RawColumn] | None,
        NDArray[np.uint8],
    ]: ...
