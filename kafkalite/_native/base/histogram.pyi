from typing import final

BUCKETS: int

@final
class Histogram:
    def add(self, seconds: float) -> None: ...
    def numbers(self) -> tuple[int, tuple[int, ...]]: ...
