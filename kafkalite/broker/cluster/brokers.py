"""The way to the other brokers of a cluster: where each is on the listener that they use among themselves, and what it
asks for. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.cluster.connection import ControllerConnection
from kafkalite.broker.cluster.quorum import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.cluster.security import Security


class Brokers:
    """See the module. `image` gives the present one; `listener` is the listener's name, `security` what it asks for."""

    def __init__(self, image: Callable[[], Image], listener: str, security: Security | None = None) -> None:
        self._image = image
        self._listener = listener
        self._security = security

    def address(self, node_id: int) -> Address | None:
        """Where a registered broker is, fenced or not; None for one without this listener."""
        broker = self._image().brokers.get(node_id)
        found = None if broker is None else broker.addresses.get(self._listener)
        return None if found is None else Address(found.host, found.port)

    def connect(self, address: Address, client_id: str, timeout_s: float) -> ControllerConnection:
        """A connection that is ready for use, signed in where that is asked for. ConnectionFailed."""
        return ControllerConnection.connect(address, client_id, timeout_s, self._security, whose="the broker")
