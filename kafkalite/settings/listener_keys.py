"""Recognize keys that apply to one listener: `listener.name.<listener>.…`, for TLS, SASL and connection limits.

Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.settings.areas import connections, sasl, tls

if TYPE_CHECKING:
    from kafkalite.settings.rows import Setting

RELOADABLE: Final = tls.RELOADABLE | connections.OF_LISTENERS
"""Keys that can be changed for a single listener while the broker runs."""


def listener_key(full: str) -> tuple[str, str] | None:
    """Split a key of one listener into (listener in lower case, key). None for other keys."""
    return tls.listener_key(full) or sasl.listener_key(full) or connections.listener_key(full)


def row_of(full: str) -> Setting | None:
    """Return the definition of a listener's setting; None for other keys."""
    return tls.row_of(full) or sasl.row_of(full) or connections.row_of(full)
