"""Look up the addresses of a cluster's other brokers, and connect to them on the inter-broker listener. Any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.cluster.connection import ControllerConnection
from kafkalite.broker.cluster.quorum import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.cluster.security import Security


class Brokers:
    """Connects to the other brokers of a cluster.

    `image` returns the current metadata image. `listener` is the name of the inter-broker listener, and `security` its
    TLS and SASL.
    """

    def __init__(self, image: Callable[[], Image], listener: str, security: Security | None = None) -> None:
        self._image = image
        self._listener = listener
        self._security = security

    def address(self, node_id: int) -> Address | None:
        """Return the inter-broker address of a registered broker, fenced or not; None if there is none."""
        broker = self._image().brokers.get(node_id)
        found = None if broker is None else broker.addresses.get(self._listener)
        return None if found is None else Address(found.host, found.port)

    def connect(self, address: Address, client_id: str, timeout_s: float) -> ControllerConnection:
        """Open an authenticated connection that is ready for use. Raises ConnectionFailed."""
        return ControllerConnection.connect(address, client_id, timeout_s, self._security, whose="the broker")
