"""Limit new connections per second: of all listeners, of one listener, and of one address.

    all listeners, one listener    the listener is paused; new connections wait in the system's backlog
    address                        the connection is accepted, held unread, and closed after a delay

A pause or delay is at most one sample (quota.window.size.seconds), as in Kafka's ConnectionQuotas.

Thread rule: only the acceptor's thread. Any thread may call `set_rates` and `set_address_rates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite._native.serve.quota import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

UNBOUNDED: Final = 2**31 - 1
"""Kafka's default: no limit."""
ADDRESSES_MAX: Final = 16_384
"""Maximum number of addresses that are counted one by one; all other addresses share one count."""
_OTHERS: Final = ""


class ConnectionRates:
    """Meters of new connections per second, each over `samples` samples of `window_s` seconds."""

    def __init__(self, *, window_s: float, samples: int) -> None:
        self._window_s = window_s
        self._burst_s = max(1, samples - 1) * window_s
        self._of_broker: Meter | None = None
        self._of_listeners: dict[str, Meter] = {}
        self._of_addresses: dict[str, Meter] = {}
        self._address_rates: Mapping[str, float] = {}
        self._default_rate: float | None = None
        self._changed = False

    def set_rates(self, of_broker: int, of_listeners: Mapping[str, int]) -> None:
        """Set the rate per second of all listeners together, and of each listener by name. Any thread."""
        self._of_broker = self._meter(self._of_broker, of_broker)
        meters = {name: self._meter(self._of_listeners.get(name), rate) for name, rate in of_listeners.items()}
        self._of_listeners = {name: meter for name, meter in meters.items() if meter is not None}

    def set_address_rates(self, rates: Mapping[str, float], default: float | None) -> None:
        """Set the rates per second by address, and the default rate of all other addresses (None: unlimited). Any
        thread."""
        self._address_rates, self._default_rate = rates, default
        self._changed = True

    def accepted(self, listener: str, now: float) -> float:
        """Count an accepted connection. Return the seconds for which its listener has to pause, or 0."""
        owed_ms = 0
        for meter in (self._of_broker, self._of_listeners.get(listener)):
            if meter is not None:
                meter.charge(1.0, now)
                owed_ms = max(owed_ms, meter.owes_ms(now))
        return min(owed_ms / 1000, self._window_s)

    def from_address(self, host: str, now: float) -> float:
        """Count a new connection from an address. Return 0 to serve it, or the seconds after which to close it."""
        rate = self._address_rates.get(host, self._default_rate)
        if rate is None:
            return 0.0
        meter = self._meter_of(host, rate, now)
        owed_ms = meter.owes_ms(now)
        if owed_ms == 0:
            meter.charge(1.0, now)
        return min(owed_ms / 1000, self._window_s)

    def _meter_of(self, host: str, rate: float, now: float) -> Meter:
        if self._changed:
            self._changed = False
            self._of_addresses = {}
        meter = self._of_addresses.get(host)
        if meter is None and len(self._of_addresses) >= ADDRESSES_MAX:
            kept = {name: one for name, one in self._of_addresses.items() if name == _OTHERS or not one.rests(now)}
            self._of_addresses = kept
            if len(kept) >= ADDRESSES_MAX:
                host = _OTHERS
                meter = kept.get(host)
        if meter is None:
            meter = self._of_addresses[host] = self._new(rate)
        return meter

    def _meter(self, present: Meter | None, rate: int) -> Meter | None:
        if rate >= UNBOUNDED:
            return None
        return present if present is not None and present.limit == rate else self._new(rate)

    def _new(self, rate: float) -> Meter:
        # One more than the initial value, so that a rate below one per sample admits the first connection.
        return Meter(rate, max(1.0, rate * self._burst_s), max(1.0, rate * self._window_s) - 1.0)
