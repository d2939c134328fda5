"""Keep references to the parts of a broker that its metrics read.

The broker sets them while it starts. None: the part is not set yet, or the broker has no such part.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite._native.serve.counters import RequestCounters
from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite._native.serve.fetch_session import FetchSessionCache
    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.clock import Clock
    from kafkalite.base.metric_families import Source
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.transaction_coordinator import TransactionCoordinator
    from kafkalite.broker.handlers.sign_in import SignIns
    from kafkalite.broker.limits.long_requests import LongRequests
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.metrics.errors import ErrorCounts
    from kafkalite.broker.metrics.slow import SlowLog
    from kafkalite.broker.net.acceptor import Acceptor
    from kafkalite.broker.net.listener import BoundListener
    from kafkalite.broker.net.worker import Worker
    from kafkalite.broker.quotas.quotas import Quotas
    from kafkalite.broker.security.authorizer import Authorizer
    from kafkalite.settings.broker import BrokerConfig


@dataclass(slots=True, kw_only=True)
class Parts:
    """References to the parts of a broker. The threads that start and configure the broker write them; the HTTP
    server's threads read them.
    """

    config: BrokerConfig
    clock: Clock
    errors: ErrorCounts
    logs: LogManager | None = None
    pool: IoPool | None = None
    long_requests: LongRequests | None = None
    memory: MemoryCeiling | None = None
    groups: GroupCoordinator | None = None
    transactions: TransactionCoordinator | None = None
    sessions: FetchSessionCache | None = None
    quotas: Quotas | None = None
    authorizer: Authorizer | None = None
    sign_ins: Mapping[str, SignIns] = field(default_factory=dict)
    """Listener name → the listener's authentication state."""
    acceptor: Acceptor | None = None
    listeners: Sequence[BoundListener] = ()
    workers: Sequence[Worker] = ()
    counters: list[RequestCounters] = field(default_factory=list)
    """The request counters, one object for each worker. Without metrics and a log of slow requests, there are none, and
    workers do not read the clock for them."""
    slow: SlowLog | None = None
    """The log of slow requests, if it is enabled."""
    sources: Sequence[Source] = ()
    """Sources of parts that this package does not know, from `BrokerServices.metric_sources`."""
    notes: Sequence[Callable[[], list[str]]] = ()
    """Functions that return remarks for the health pages."""
    accepting: bool = False
    """Whether clients can connect."""
    stopping: bool = False

    def new_counters(self) -> RequestCounters:
        """Return the request counters of a new network worker."""
        counters = RequestCounters(slow_ms=self.config.request_slow_log_ms, on_slow=self.slow)
        self.counters.append(counters)
        return counters
