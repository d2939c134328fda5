"""Find the coordinator of a group or transactional id, cache its address, and look it up again when it has moved.

    unknown ──FindCoordinator──▶ address ──NOT_COORDINATOR, NOT_AVAILABLE, connection lost──▶ unknown

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.cluster import SHARED, raise_for
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol.api import FIND_COORDINATOR
from kafkalite.wire.protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from kafkalite.client.cluster import Cluster
    from kafkalite.client.connection import Connection

COORDINATOR_VERSION_MAX: Final = 3
"""The last version that looks up one key."""
GROUP: Final = 0
TRANSACTION: Final = 1
KINDS: Final = {GROUP: "group", TRANSACTION: "transactional id"}
MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Codes after which the coordinator must be looked up again."""
WAITING: Final = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""Codes by which a coordinator rejects a request until it is ready or another broker takes over."""


class Coordinator:
    """The coordinator of one group or transactional id. `lane` as in Cluster.leader."""

    def __init__(self, client: Cluster, key: str, kind: int = GROUP, lane: str = SHARED) -> None:
        self._client = client
        self._key = key
        self._kind = kind
        self._lane = lane
        self._address: tuple[str, int] | None = None

    def connection(self) -> Connection:
        """Return a connection to the coordinator. Raises KafkaError and ClientError."""
        if self._address is None:
            self._address = self._find()
        return self._client.connection_at(*self._address, self._lane)

    def forget(self) -> None:
        """Drop the cached address, so that the next connection looks it up."""
        self._address = None

    def note(self, code: int) -> None:
        """Drop the cached address if a response's error code means that the coordinator has moved."""
        if code in MOVED:
            self.forget()

    def _find(self) -> tuple[str, int]:
        answer: Any = self._client.any_connection().request(
            FIND_COORDINATOR,
            FindCoordinatorRequest(key=self._key, key_type=self._kind),
            version_max=COORDINATOR_VERSION_MAX,
        )
        raise_for(
            answer.error_code, f"cannot find the coordinator of {KINDS[self._kind]} {self._key}", answer.error_message
        )
        return answer.host, answer.port
