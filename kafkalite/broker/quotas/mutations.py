"""Partitions that a request creates and deletes, and what the quota of its client (controller_mutation_rate) says.

While something is owed, a *strict* request is refused, topic by topic, with THROTTLING_QUOTA_EXCEEDED; any other one is
done, and its client held up (KIP-599). Clients are told which it is by the version they ask in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkalite._native.serve.quota import Meter
    from kafkalite.base.clock import Clock

_TEXT: Final = "the controller_mutation_rate quota is exceeded; retry in {} ms"


class Mutations:
    """Those of one request. `meter`: None where its client has no quota."""

    __slots__ = ("_clock", "_meter", "_strict", "throttle_ms")

    def __init__(self, meter: Meter | None, clock: Clock, *, strict: bool) -> None:
        self._meter = meter
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0
        """What the client is to be told to wait."""

    def record(self, partition_count: int) -> None:
        """So many are about to be created or deleted; KafkaError with THROTTLING_QUOTA_EXCEEDED: they are not."""
        meter = self._meter
        if meter is None:
            return
        now = self._clock.monotonic()
        owed_ms = meter.owes_ms(now)
        refused = self._strict and owed_ms > 0
        if not refused:
            meter.charge(partition_count, now)
            owed_ms = 0 if self._strict else meter.owes_ms(now)
        if owed_ms > 0:
            if self.throttle_ms == 0:
                meter.held_up(owed_ms)
            self.throttle_ms = owed_ms
        if refused:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _TEXT.format(owed_ms))
