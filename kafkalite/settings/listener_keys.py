"""Keys that belong to one listener, `listener.name.<listener>.…`: of TLS, of SASL and its mechanisms, limits of
connections. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.settings.areas import connections, sasl, tls

if TYPE_CHECKING:
    from kafkalite.settings.rows import Setting

RELOADABLE: Final = tls.RELOADABLE | connections.OF_LISTENERS
"""Keys that may change while the broker runs, on a listener of its own."""


def listener_key(full: str) -> tuple[str, str] | None:
    """(listener in lower case, key) of a listener's own key; None for any other."""
    return tls.listener_key(full) or sasl.listener_key(full) or connections.listener_key(full)


def row_of(full: str) -> Setting | None:
    """The row of a listener's own key."""
    return tls.row_of(full) or sasl.row_of(full) or connections.row_of(full)
