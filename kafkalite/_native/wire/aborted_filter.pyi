from collections.abc import Iterable

from kafkalite._native.wire.batch import BatchInfo

class AbortedFilter:
    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None: ...
    def drops_batch(self, info: BatchInfo) -> bool: ...
