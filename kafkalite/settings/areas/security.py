"""Define the broker's settings for connections before authentication.

The modules `tls` and `sasl` of this package define the settings of authentication itself.
"""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, LONG, MIB, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class SecurityRows:
    """Settings that limit connections before authentication."""

    __slots__ = ()

    connection_authentication_timeout_ms: int = setting(
        INT,
        30_000,
        "Time limit for a connection's TLS handshake and SASL exchange; then it is closed.",
        unit="ms",
        low=1,
    )
    connection_authentication_max: int = setting(
        INT,
        5000,
        "Maximum number of connections in a TLS handshake or SASL exchange. Above it, the oldest one from the "
        "new connection's address is closed, or else the new one. The last tenth is reserved for addresses with "
        "at most 100. The limit is divided among the network threads.",
        low=1,
    )
    connection_authentication_max_bytes: int = setting(
        LONG,
        32 * MIB,
        "Memory for requests before SASL authentication. Above it, the oldest connection of the same address is "
        "closed, or else the one that needs more. The last tenth is reserved for addresses that use at most a "
        "hundredth. The limit is divided among the network threads.",
        unit="bytes",
        low=MIB,
    )
    connection_failed_authentication_delay_ms: int = setting(
        INT,
        100,
        "Delay before the broker closes a connection after failed authentication.",
        unit="ms",
        low=0,
    )
