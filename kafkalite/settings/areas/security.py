"""Rows of the broker's settings table about who clients are and what they may do; TLS's own are in `tls` beside it."""

from dataclasses import dataclass

from kafkalite.settings.rows import INT, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class SecurityRows:
    """Connections that have not shown yet who they are."""

    __slots__ = ()

    connection_authentication_timeout_ms: int = setting(
        INT, 30_000, "A connection whose TLS handshake takes longer is closed.", unit="ms", low=1
    )
    connection_authentication_max: int = setting(
        INT,
        5000,
        "Connections whose TLS handshake is not done; above it the oldest is closed.",
        low=1,
    )
    connection_failed_authentication_delay_ms: int = setting(
        INT,
        100,
        "How long the close after a failed authentication is put off.",
        unit="ms",
        low=0,
    )
