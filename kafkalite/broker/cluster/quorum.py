"""Find the leader of the controllers' quorum; without a known leader, choose the next address to try.

A node that is not the leader answers a Fetch with the leader's id and epoch. The epoch never decreases. While no leader
is known, the configured addresses are tried in turn.

Source: KafkaRaftClient (transitions of an observer) and RequestManager of Kafka 4.1.

Thread rule: belongs to one thread, but any thread may read `leader` and `leader_id`. Does no I/O.
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
    """The address of a controller's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Quorum:
    """The known state of the quorum.

    `voters` are addresses with node ids, `servers` addresses without. `listener` is the name of the controllers'
    listener.
    """

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
        """The leader's address, or None while it is unknown."""

    @property
    def address(self) -> Address:
        """The address to send the next request to."""
        return self.leader or self._servers[self._next]

    def answered(self) -> None:
        """Note that the server at `address` answered a Fetch without an error, so it is the leader."""
        if self.leader is None:
            self.leader = self._servers[self._next]
        self._failures = 0

    def told(self, leader_id: int, epoch: int, endpoints: Mapping[int, Address], image: Image) -> None:
        """Apply a response that names a leader. Do nothing if a newer leader is known.

        Newer versions of the response have the leader's address in `endpoints`. Otherwise it is that of the leader's id
        in `controller.quorum.voters`, or else in the metadata log, in the registrations or among the voters.
        """
        if epoch < self.epoch or (epoch == self.epoch and leader_id == UNKNOWN != self.leader_id):
            return
        if (leader_id, epoch) != (self.leader_id, self.epoch):
            self.leader_id, self.epoch, self.leader = leader_id, epoch, None
            self._failures = 0
        if leader_id != UNKNOWN:
            self.leader = endpoints.get(leader_id) or self._known(leader_id, image)

    def failed(self) -> float:
        """Choose the next server, because the last request failed; return the seconds to wait before the next
        request.
        """
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
