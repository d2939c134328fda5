from collections.abc import Callable
from typing import Any, TypeAlias

from kafkalite._native.serve.access import AccessControl
from kafkalite._native.serve.connection import Connection
from kafkalite._native.serve.counters import RequestCounters
from kafkalite._native.serve.fetch import FetchServer
from kafkalite._native.serve.leaders import Leaders
from kafkalite._native.serve.memory import MemoryCeiling
from kafkalite._native.serve.produce import ProduceServer
from kafkalite._native.serve.quota import Meter, QuotaControl
from kafkalite._native.serve.transfer import Mailbox, OutBuffer

NativeApi: TypeAlias = tuple[int, int, int, int]
"""(API key, oldest and newest supported version, first flexible version)."""

class WorkerParts:
    now: float
    classic: Any
    faults: Any
    selector_fd: int
    def __init__(
        self,
        mailbox: Mailbox,
        out: OutBuffer,
        produce: ProduceServer,
        fetch: FetchServer,
        dispatch: Callable[[Connection, int, int, int, bytes | None, bytes], bytes | None],
        on_interest: Callable[[Connection, int], None],
        on_close: Callable[[Connection], None],
        apis: tuple[NativeApi, NativeApi],
        *,
        request_size_max: int,
        output_bytes_max: int,
        in_flight_max: int,
    ) -> None: ...
    @property
    def mailbox(self) -> Mailbox: ...
    @property
    def counters(self) -> RequestCounters | None: ...
    @property
    def requests(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def handshake_count(self) -> int: ...
    def use_tls(self) -> None: ...
    def use_sign_in(
        self,
        *,
        handshake_s_max: float,
        handshake_count_max: int,
        failing_s: float,
        unknown_bytes_max: int,
        handshake_count_small: int = ...,
    ) -> None: ...
    def use_memory(self, memory: MemoryCeiling) -> None: ...
    def memory_is_needed(self) -> bool: ...
    def give_back(self) -> None: ...
    def use_access(self, access: AccessControl) -> None: ...
    def use_leaders(self, leaders: Leaders, limit: Meter) -> None: ...
    def use_quotas(self, quotas: QuotaControl | None) -> None: ...
    def use_counters(self, counters: RequestCounters) -> None: ...
