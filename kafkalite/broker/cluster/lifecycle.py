"""Drive a broker's lifecycle in a cluster: registration, heartbeats, fencing, and controlled shutdown.

    REGISTERING ─▶ STARTING ─▶ IN_SERVICE ─▶ STOPPING ─▶ STOPPED         any phase before STOPPED ─▶ FAILED

    REGISTERING   the broker registers and gets its epoch
    STARTING      heartbeats report the applied metadata. Once the broker has caught up and is ready to serve, it asks
                  to be unfenced
    IN_SERVICE    heartbeats continue. If the controllers get none for their broker.session.timeout.ms, they fence the
                  broker; a later heartbeat unfences it
    STOPPING      heartbeats ask for a controlled shutdown; the broker serves clients until it leads no partition

Source: BrokerLifecycleManager of Kafka 4.4. Takes events and returns requests; no I/O and no clock. A lock of
the `Member` guards it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.broker.cluster.records import METADATA_LEVELS, NOT_SERVED, taken_when_formatted
from kafkalite.broker.features import METADATA_VERSION
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkalite.wire.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.broker.cluster.image import Address, Image
    from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
    from kafkalite.wire.protocol.messages.broker_registration import BrokerRegistrationResponse

CATCH_UP_S: Final = 0.01
"""Interval of heartbeats until the metadata has caught up."""
HAND_OVER_S: Final = 0.05
"""Interval between the first two heartbeats of a controlled shutdown."""
HAND_OVER_AGAIN_S: Final = 0.5
"""Interval between later heartbeats of a controlled shutdown, unless the heartbeat interval is shorter."""
SESSION_OVER_S: Final = 0.5
"""Interval of registrations while the session of an earlier process lasts."""
LOOK_AGAIN_S: Final = 0.1
"""Delay before a request that reached no controller is sent again."""
SHUTDOWN_S_MAX: Final = 300.0
UNKNOWN_EPOCH: Final = -1

FEATURES: Final = {
    METADATA_VERSION: METADATA_LEVELS,
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
"""The features that this release supports in a cluster: name → oldest and newest level."""

_AGAIN_S: Final[Mapping[int, float]] = {
    ErrorCode.NOT_CONTROLLER: LOOK_AGAIN_S,
    ErrorCode.BROKER_ID_NOT_REGISTERED: LOOK_AGAIN_S,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: SESSION_OVER_S,
}
"""Delay after a registration was refused for a temporary reason; for other errors it is the heartbeat interval."""


class Phase(enum.Enum):
    """The phases of a broker's lifecycle."""

    REGISTERING = "registering"
    STARTING = "starting"
    IN_SERVICE = "in service"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The data with which a broker registers."""

    node_id: int
    cluster_id: str
    incarnation: bytes
    """Unique to this process."""
    addresses: tuple[Address, ...]
    rack: str | None
    directory_id: bytes
    previous_epoch: int = UNKNOWN_EPOCH
    """The broker epoch in which an earlier process stopped cleanly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Durations that settings determine, in seconds."""

    registration_max: float
    beat: float
    session: float
    start_max: float
    """Maximum time from the start until the broker is in service."""


class Lifecycle:
    """The lifecycle of this broker. Times are seconds of one monotonic clock.

    If `serves` is false, the broker never asks to be unfenced.
    """

    def __init__(self, node: Node, times: Times, now: float, *, serves: bool) -> None:
        self.node = node
        self.times = times
        self.phase = Phase.REGISTERING
        self.epoch = UNKNOWN_EPOCH
        self.fenced = True
        self.caught_up = False
        self.failure = ""
        """Why the lifecycle FAILED, in one sentence."""
        self.controllers_away = False
        """Whether the lifecycle FAILED because no controller accepted the registration in time."""
        self.answered = 0
        """The number of heartbeats that the controllers have answered."""
        self._serves = serves
        self._ready = False
        self._register_by = now + times.registration_max
        self._next = now
        self._last_beat = now  # the last heartbeat that was answered
        self._stop_by = 0.0
        self._handing_over = 0
        self._last_error = "no controller responded"

    @property
    def ended(self) -> bool:
        """Whether the last request was sent."""
        return self.phase in (Phase.STOPPED, Phase.FAILED)

    @property
    def api_key(self) -> int:
        """The API of the next request: BrokerRegistration or BrokerHeartbeat."""
        return api.BROKER_REGISTRATION if self.phase is Phase.REGISTERING else api.BROKER_HEARTBEAT

    def wait(self, now: float) -> float:
        """Return the seconds until the next request is due, 0 if it is due now."""
        return max(0.0, self._next - now)

    def unheard_s(self, now: float) -> float:
        """Return the seconds since the controllers last accepted a heartbeat or the registration."""
        return max(0.0, now - self._last_beat)

    def ready(self, now: float) -> None:
        """Note that all parts of the broker run, so that it may ask to be unfenced."""
        self._ready = True
        if self.phase is Phase.STARTING:
            self._next = now

    def stop(self, now: float) -> None:
        """Start a controlled shutdown. A broker that was never in service leads nothing and stops at once."""
        if self.ended or self.phase is Phase.STOPPING:
            return
        if self.phase is Phase.IN_SERVICE:
            self.phase, self._next, self._stop_by = Phase.STOPPING, now, now + SHUTDOWN_S_MAX
        else:
            self.phase = Phase.STOPPED

    def saw(self, image: Image) -> None:
        """Check new metadata; fail if another process has registered with this node id."""
        present = image.brokers.get(self.node.node_id)
        if self.epoch == UNKNOWN_EPOCH or present is None or self.ended:
            return
        if present.epoch > self.epoch and present.incarnation != self.node.incarnation:
            self._fail(
                f"another broker has registered with node.id={self.node.node_id}; give each broker its own node.id"
            )

    def request(
        self, applied_offset: int, *, cordoned: bool | None = None
    ) -> BrokerRegistrationRequest | BrokerHeartbeatRequest:
        """Return the request to send now.

        `applied_offset` is the offset of the last published metadata record, or -1. `cordoned` is whether the data
        directory is closed to new partitions; None if the cluster does not support that.
        """
        if self.phase is Phase.REGISTERING:
            return self._registration()
        return BrokerHeartbeatRequest(
            broker_id=self.node.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=applied_offset,
            want_fence=not self._wants_in,
            want_shut_down=self.phase is Phase.STOPPING,
            cordoned_log_dirs=self._cordoned(cordoned),
        )

    def _cordoned(self, cordoned: bool | None) -> list[bytes] | None:
        """Return the directories that a heartbeat reports as closed to new partitions (cordoned).

        None means that the heartbeat reports no change, for example before the metadata has caught up.
        """
        if cordoned is None or not self.caught_up:
            return None
        return [self.node.directory_id] if cordoned else []

    @property
    def _wants_in(self) -> bool:
        return self._serves and self._ready and self.caught_up

    def _registration(self) -> BrokerRegistrationRequest:
        node = self.node
        return BrokerRegistrationRequest(
            broker_id=node.node_id,
            cluster_id=node.cluster_id,
            incarnation_id=node.incarnation,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.protocol)
                for each in node.addresses
            ],
            features=[
                Feature(name=name, min_supported_version=oldest, max_supported_version=newest)
                for name, (oldest, newest) in FEATURES.items()
            ],
            rack=node.rack,
            log_dirs=[node.directory_id],
            previous_broker_epoch=node.previous_epoch,
        )

    def registered(self, response: BrokerRegistrationResponse, now: float, levels: Mapping[str, int]) -> None:
        """Handle the response to a registration. `levels` are the finalized features of the cluster, if known."""
        if self.phase is not Phase.REGISTERING:
            return
        code = response.error_code
        if code == ErrorCode.NONE:
            self.epoch, self.phase, self._next, self._last_beat = response.broker_epoch, Phase.STARTING, now, now
            return
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._fail(
                f"the data directory belongs to cluster {self.node.cluster_id}, but the controllers belong to "
                "another one"
            )
        elif code == ErrorCode.INVALID_REGISTRATION:
            self._fail("the controllers refused this broker's registration; see the controllers' log for the reason")
        elif code == ErrorCode.UNSUPPORTED_VERSION and (levels or now >= self._register_by):
            self._fail(unsupported_features(levels))
        else:
            self._last_error = in_words(code)
            self._again(now, _AGAIN_S.get(code, self.times.beat))

    def beaten(self, response: BrokerHeartbeatResponse, now: float) -> None:
        """Handle the response to a heartbeat."""
        if self.ended or self.phase is Phase.REGISTERING:
            return
        if response.error_code:
            self._last_error = in_words(response.error_code)
            self._again(now, LOOK_AGAIN_S if response.error_code == ErrorCode.NOT_CONTROLLER else self.times.beat)
            return
        self._last_beat = now
        self.answered += 1
        self.fenced = response.is_fenced
        if self.phase is Phase.STOPPING:
            self._hand_over(now, done=response.should_shut_down)
            return
        caught_up, self.caught_up = self.caught_up, self.caught_up or response.is_caught_up
        if self.phase is Phase.STARTING and not self.fenced:
            self.phase = Phase.IN_SERVICE
        if not self.caught_up:
            self._next = now + CATCH_UP_S
        elif not caught_up and self._wants_in:
            self._next = now
        else:
            self._next = now + self.times.beat

    def unanswered(self, now: float, why: str, *, no_controller: bool = False) -> None:
        """Note that a request got no response, or that no controller is known."""
        self._last_error = why
        self._again(now, LOOK_AGAIN_S if no_controller else self.times.beat)

    def _hand_over(self, now: float, *, done: bool) -> None:
        self._handing_over += 1
        if done or now >= self._stop_by:
            self.phase = Phase.STOPPED
        else:
            self._next = now + (HAND_OVER_S if self._handing_over == 1 else min(HAND_OVER_AGAIN_S, self.times.beat))

    def _again(self, now: float, delay_s: float) -> None:
        self._next = now + delay_s
        if self.phase is Phase.REGISTERING and now >= self._register_by:
            self.controllers_away = True
            self._fail(
                f"could not register with a controller within {self.times.registration_max:g} s: {self._last_error}"
            )
        if self.phase is Phase.STOPPING and now >= min(self._stop_by, self._last_beat + self.times.session):
            self.phase = Phase.STOPPED  # they have fenced it by now, or are unreachable

    def _fail(self, why: str) -> None:
        self.phase, self.failure = Phase.FAILED, why


def unsupported_features(levels: Mapping[str, int]) -> str:
    """Return a sentence that explains why this broker cannot join a cluster with these features.

    If formatting the controllers helps, the sentence contains the options for it.
    """
    unknown = [f"{name}={level}" for name, level in sorted(levels.items()) if name not in FEATURES and level > 0]
    other = [name for name, level in sorted(levels.items()) if name in FEATURES and not _is_done(name, level)]
    if not unknown and not other:
        return f"the cluster has features that this release does not support: {taken_when_formatted()}"
    found = [f"{each}, which this release does not support" for each in unknown]
    found += [
        f"{name}={levels[name]}, of which this release supports levels {FEATURES[name][0]} to {FEATURES[name][1]}"
        for name in other
    ]
    off = " ".join(f"--feature {each.partition('=')[0]}=0" for each in unknown)
    why = f"the cluster has {', and '.join(found)}"
    if levels.get(METADATA_VERSION, 0) > FEATURES[METADATA_VERSION][1]:
        # A newer release also enables the features that are unsupported in the supported one.
        return f"{why}: {taken_when_formatted(off or NOT_SERVED)}"
    if other or not off:
        return why
    return f"{why}; format the controllers with {off}, or disable the feature: kafka-features.sh downgrade {off}"


def _is_done(name: str, level: int) -> bool:
    oldest, newest = FEATURES[name]
    return oldest <= level <= newest


def in_words(code: int) -> str:
    """Return the name and the text of an error code; only the number if the code is unknown."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error {code}"
    return f"{known.name} ({known.text})"
