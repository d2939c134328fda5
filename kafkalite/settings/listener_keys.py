"""Split keys of the form `listener.name.<listener>.…`, and find their settings (TLS, SASL, connection limits). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.settings.areas import connections, sasl, tls

if TYPE_CHECKING:
    from kafkalite.settings.rows import Setting

RELOADABLE: Final = tls.RELOADABLE | connections.OF_LISTENERS
"""Keys that can be changed for a single listener while the broker runs."""


def listener_key(full: str) -> tuple[str, str] | None:
    """Return (listener in lower case, key) for a key of one listener, None for any other."""
    return tls.listener_key(full) or sasl.listener_key(full) or connections.listener_key(full)


def row_of(full: str) -> Setting | None:
    """Return the row of a listener's key, None if it is unknown."""
    return tls.row_of(full) or sasl.row_of(full) or connections.row_of(full)
