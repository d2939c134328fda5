"""Apply a client's controller_mutation_rate quota to partitions that a request creates or deletes (KIP-599).

The quota is *strict* or not, depending on the version of the request. While a client is over a strict quota, each topic
of its request is refused with THROTTLING_QUOTA_EXCEEDED. If the quota is not strict, the request is carried out, and
the client is throttled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkalite._native.serve.quota import Meter
    from kafkalite.base.clock import Clock

_TEXT: Final = "the controller_mutation_rate quota is exceeded; retry in {} ms"


class Mutations:
    """The partition quota as it applies to one request. `meter` is None if the client has no quota."""

    __slots__ = ("_clock", "_meter", "_strict", "throttle_ms")

    def __init__(self, meter: Meter | None, clock: Clock, *, strict: bool) -> None:
        self._meter = meter
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0
        """Throttle time in ms for the response."""

    def record(self, partition_count: int) -> None:
        """Count partitions that are about to be created or deleted.

        KafkaError (THROTTLING_QUOTA_EXCEEDED) if the client is over a strict quota.
        """
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
