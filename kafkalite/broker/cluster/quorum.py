"""Who leads the quorum of controllers, as far as is known, and where to ask when it is not.

The leader is learnt from answers to Fetch: an error names the present leader and its epoch, newer ones its address too.
An epoch never goes back. Addresses by id come from the answer itself, from `controller.quorum.voters`, or from what the
controllers have written into the metadata log; while none is known, the addresses to begin with are asked in turn.

Source: KafkaRaftClient (transitions of an observer) and RequestManager of Kafka 4.1. Pure; one thread's, but for
`leader`, which any thread may read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base import randomness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.broker.cluster.image import Image

UNKNOWN: Final = -1
BACKOFF_S_MIN: Final = 0.02
"""Kafka's quorum.retry.backoff.ms."""
BACKOFF_S_MAX: Final = 1.0


class Address(NamedTuple):
    """Of a controller's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Quorum:
    """See the module. `voters` are by id, `servers` those without one; `listener` names that of the controllers."""

    def __init__(self, voters: Mapping[int, Address], servers: tuple[Address, ...], listener: str) -> None:
        self._voters = dict(voters)
        self._servers = tuple(dict.fromkeys((*servers, *voters.values())))
        assert self._servers, "somebody to begin with"
        self._listener = listener
        self._next = randomness.below(len(self._servers))
        self._failures = 0
        self.leader_id = UNKNOWN
        self.epoch = 0
        self.leader: Address | None = None
        """Where the leader is; None while that is not known."""

    @property
    def address(self) -> Address:
        """Whom to ask now."""
        return self.leader or self._servers[self._next]

    def answered(self) -> None:
        """The server that was asked gave records: it leads."""
        if self.leader is None:
            self.leader = self._servers[self._next]
        self._failures = 0

    def told(self, leader_id: int, epoch: int, endpoints: Mapping[int, Address], image: Image) -> None:
        """A server said who leads; what is older than what is known does not count."""
        if epoch < self.epoch or (epoch == self.epoch and leader_id == UNKNOWN != self.leader_id):
            return
        if (leader_id, epoch) != (self.leader_id, self.epoch):
            self.leader_id, self.epoch, self.leader = leader_id, epoch, None
            self._failures = 0
        if leader_id != UNKNOWN:
            self.leader = endpoints.get(leader_id) or self._known(leader_id, image)

    def failed(self) -> float:
        """The server that was asked did not help; the seconds to wait before the next one is."""
        self.leader = None
        self._next = (self._next + 1) % len(self._servers)
        delay_s = min(BACKOFF_S_MIN * float(1 << min(self._failures, 16)), BACKOFF_S_MAX)
        self._failures += 1
        return delay_s

    def _known(self, node_id: int, image: Image) -> Address | None:
        if node_id in self._voters:
            return self._voters[node_id]
        controller = image.controllers.get(node_id)
        for addresses in (controller.addresses if controller else {}, image.voters.get(node_id, {})):
            found = addresses.get(self._listener)
            if found is not None:
                return Address(found.host, found.port)
        return None
