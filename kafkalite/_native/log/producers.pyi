from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kafkalite._native.log.aborted import AbortedTransactions

FROM_CLIENT: int
FROM_CLIENT_V2: int
FROM_COORDINATOR: int

Span: TypeAlias = tuple[int, int, int, int, int]

class ProducerEntry:
    producer_id: int
    epoch: int
    coordinator_epoch: int
    transaction_offset: int
    last_offset: int
    last_timestamp: int
    seen_ms: int
    span_count: int
    def __init__(self, producer_id: int, epoch: int) -> None: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_data_offset(self) -> int: ...
    def batches(self) -> list[Span]: ...

class ProducerTable:
    dirty: bool
    count_max: int
    aborted: AbortedTransactions
    first_open_offset: int
    marker_count: int
    open_count: int
    replicated: bool
    def __init__(self, count_max: int = 50000, *, replicated: bool = False) -> None: ...
    def restore(
        self,
        producer_id: int,
        epoch: int,
        spans: Sequence[Span],
        *,
        coordinator_epoch: int = -1,
        transaction_offset: int = -1,
        last_offset: int = -1,
        last_timestamp: int = -1,
        seen_ms: int = 0,
    ) -> None: ...
    def open_transactions(self) -> list[tuple[int, int]]: ...
    def expire(self, now_ms: int, idle_max_ms: int) -> int: ...
    def get(self, producer_id: int) -> ProducerEntry | None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ProducerEntry]: ...
