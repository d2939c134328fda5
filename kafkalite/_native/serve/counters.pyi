from collections.abc import Callable
from typing import TypeAlias, final

from kafkalite._native.serve.connection import Connection

Numbers: TypeAlias = tuple[int, tuple[int, ...]]
"""As Histogram.numbers() returns them: (sum, counts of the buckets)."""
ApiNumbers: TypeAlias = tuple[dict[int, int], dict[int, int], Numbers, Numbers, Numbers, Numbers, Numbers, Numbers]
OnSlow: TypeAlias = Callable[[Connection, int, int, bytes | None, int, int, int, int], object]

@final
class Timing: ...

@final
class Turns:
    def numbers(self) -> tuple[float, float]: ...
    def cpu(self) -> tuple[float, Numbers]: ...

@final
class RequestCounters:
    handshakes: int
    handshakes_failed: int
    def __init__(self, *, slow_ms: int = 0, on_slow: OnSlow | None = None) -> None: ...
    @property
    def slow_ns(self) -> int: ...
    def use_slow_ms(self, slow_ms: int) -> None: ...
    def numbers(self) -> dict[int, ApiNumbers]: ...
