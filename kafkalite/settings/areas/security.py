"""Rows of the broker's settings table about who clients are and what they may do; TLS and SASL are beside it."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LONG, MIB, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class SecurityRows:
    """Connections that have not shown yet who they are."""

    __slots__ = ()

    connection_authentication_timeout_ms: int = setting(
        INT, 30_000, "A connection whose TLS handshake and SASL exchange take longer is closed.", unit="ms", low=1
    )
    connection_authentication_max: int = setting(
        INT,
        5000,
        "Connections whose TLS handshake or SASL exchange is not done; above it the oldest of the newcomer's address"
        " is closed, or else the newcomer. The last tenth is for addresses with at most 100. Each network thread has an"
        " equal part of it.",
        low=1,
    )
    connection_authentication_max_bytes: int = setting(
        LONG,
        32 * MIB,
        "Memory for requests of clients before SASL authentication. Above it the oldest connection of the same address"
        " is closed, or else the one that needs more. The last tenth is for addresses that keep at most a"
        " hundredth. Each network thread has an equal part of it.",
        unit="bytes",
        low=MIB,
    )
    connection_failed_authentication_delay_ms: int = setting(
        INT,
        100,
        "How long the close after a failed authentication is put off.",
        unit="ms",
        low=0,
    )
