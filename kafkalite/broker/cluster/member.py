"""Join a cluster with Apache Kafka's controllers, and follow its metadata.

    start ─▶ wait_caught_up ─▶ the other parts of the broker start ─▶ enter ─▶ … ─▶ stop

A member has these threads:

    kafkalite-metadata    fetches the metadata log from the quorum's leader (`Observer`) and publishes images
    kafkalite-proposer    sends the quorum's leader changes of ISRs and replica directories (another `Forwarder`)
    kafkalite-forwarder   sends the quorum's leader clients' requests and this broker's other requests (`Forwarder`)
    kafkalite-heartbeat   registers and sends heartbeats (`Lifecycle`) on its own connection, so nothing delays them

The metadata thread calls `listeners` with the previous image and the new one, in order. A heartbeat reports an image as
applied only after these calls. Any thread may read `image`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite.base.dataclass import dataclass
from kafkalite.base.executors import THREADS
from kafkalite.broker.cluster.connection import ConnectionFailed, ControllerConnection
from kafkalite.broker.cluster.creation import Creation
from kafkalite.broker.cluster.forwarding import Forwarder
from kafkalite.broker.cluster.image import EMPTY, Image
from kafkalite.broker.cluster.lifecycle import Lifecycle, Phase, in_words
from kafkalite.broker.cluster.observer import FETCH_OLDEST, Observer
from kafkalite.broker.cluster.quorum import UNKNOWN, Address, Quorum
from kafkalite.broker.cluster.records import MetadataFault
from kafkalite.broker.features import CORDON_LEVEL, METADATA_VERSION
from kafkalite.errors import ControllersAway, ErrorCode, StartGivenUp, StartupError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.base.clock import Clock
    from kafkalite.base.deferred import Deferred
    from kafkalite.base.executors import Event, Executors
    from kafkalite.broker.cluster.forwarding import Outcome
    from kafkalite.broker.cluster.lifecycle import Node, Times
    from kafkalite.broker.cluster.security import Security

logger = logging.getLogger("kafkalite.broker.cluster")

FETCH_TIMEOUT_S: Final = 2.0 + 0.5
"""Kafka's quorum.request.timeout.ms plus the time that the leader may wait for records."""
NO_CONTROLLER_WAIT_S: Final = 0.5
WAIT_S_MAX: Final = 3600.0
"""Maximum time in seconds of a single wait; a longer wait is divided."""
REGISTRATION_OLDEST: Final = 4
"""The first version that can report a feature from level 0; every controller of Kafka 4 serves it."""
_CONTROLLERS: Final = 2
_PLACE: Final = "\0"
_ENDPOINT_TYPE_SINCE: Final = 1


class Connect(Protocol):
    """Opens a connection to a controller; raises ConnectionFailed."""

    def __call__(self, address: Address, client_id: str, timeout_s: float) -> ControllerConnection: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The configured addresses at which the quorum's leader is looked for."""

    voters: Mapping[int, Address]
    servers: tuple[Address, ...]
    listener: str
    security: Security | None = None
    """The TLS and SASL settings for the controllers' listener; None for plaintext."""

    def connect(self, address: Address, client_id: str, timeout_s: float) -> ControllerConnection:
        """Open a connection that is ready for use. Raises ConnectionFailed."""
        return ControllerConnection.connect(address, client_id, timeout_s, self.security)

    def quorum(self) -> Quorum:
        """Return the state of a quorum whose leader is not known yet."""
        return Quorum(self.voters, self.servers, self.listener)


class Member:
    """This broker's membership in a cluster.

    If `serves` is false, the broker never asks to be unfenced and gets no partitions.
    """

    def __init__(
        self,
        node: Node,
        controllers: Controllers,
        times: Times,
        clock: Clock,
        *,
        serves: bool,
        on_fatal: Callable[[BaseException], None],
        executors: Executors = THREADS,
        connect: Connect | None = None,
        cordoned: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a member that is not started. `cordoned` returns whether the settings close the data directory to new
        partitions.

        `on_fatal` is called once, after the start, with a fault that prevents the broker from continuing. An example is
        another broker with the same id. During the start such a fault is raised as a StartupError instead.
        """
        self.image: Image = EMPTY
        self.listeners: list[Callable[[Image, Image], None]] = []
        self._node = node
        self._times = times
        self._clock = clock
        self._on_fatal = on_fatal
        self._connect = connect or controllers.connect
        self._client_id = f"broker-{node.node_id}"
        self._observer = Observer(node.node_id, node.cluster_id, node.directory_id, controllers.quorum())
        self._lifecycle = Lifecycle(node, times, clock.monotonic(), serves=serves)  # guarded by _beating.lock
        self._following = executors.worker("kafkalite-metadata", self._follow)
        self._beating = executors.worker("kafkalite-heartbeat", self._beat)
        self._forwarder = Forwarder(lambda: self._observer.quorum.leader, self._opened, clock, executors)
        self._proposer = Forwarder(
            lambda: self._observer.quorum.leader, self._opened, clock, executors, "kafkalite-proposer"
        )
        self.controller_apis: Mapping[int, tuple[int, int]] = {}
        """API → oldest and newest version that the controller serves."""
        self.creation = Creation(self.forward, lambda: self.controller_apis, self.ask)
        self._log_connection: ControllerConnection | None = None  # replaced only by its thread, as the next
        self._beat_connection: ControllerConnection | None = None
        self._cordoned = cordoned
        self._serves = serves
        self._stopping = False
        self._applied_offset = -1  # of the last image that was passed to every listener
        self._epoch_told = -1  # of this process's registration in the metadata
        self._publishing = False  # whether listeners are being called
        self._refusal = (0, 0)  # API and error code of the last response; belongs to the heartbeat thread
        self._fault: BaseException | None = None
        self._begun = False  # whether faults go to on_fatal
        self._start_by = clock.monotonic() + times.start_max
        self._caught_up = executors.event()  # set on failure too, as the next
        self._entered = executors.event()
        self._ended = executors.event()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start following the metadata and registering."""
        self._following.start()
        self._beating.start()
        self._forwarder.start()
        self._proposer.start()

    def wait_caught_up(self) -> None:
        """Wait until the broker is registered and its metadata has caught up. Raises StartupError."""
        self._wait(self._caught_up, "its metadata has not caught up")

    def enter(self) -> None:
        """Report that all parts of the broker run.

        If the broker serves clients, wait until the controllers have unfenced it and its own image shows that. Then
        clients see it in Metadata responses. Raises StartupError.
        """
        if self._serves:
            with self._beating.lock:
                self._lifecycle.ready(self._clock.monotonic())
                self._beating.call_locked()
            self._wait(self._entered, "the controllers have not unfenced it")
        self._begun = True

    def give_up(self) -> None:
        """End the waits of a start, now and in the future, with StartGivenUp. Any thread."""
        if not self._begun:
            self._fail(StartGivenUp("the broker was stopped before it was ready"))

    def _wait(self, event: Event, otherwise: str) -> None:
        while not event.is_set() and (left := self._start_by - self._clock.monotonic()) > 0:
            event.wait(min(left, WAIT_S_MAX))
        if isinstance(self._fault, StartGivenUp):
            raise self._fault
        if self._fault is not None:
            kind = ControllersAway if isinstance(self._fault, ControllersAway) else StartupError
            raise kind(str(self._fault)) from self._fault
        if not event.is_set():
            raise ControllersAway(
                f"the broker is registered with the controllers, but {otherwise} within {self._times.start_max:g} s "
                "(server.max.startup.time.ms)"
            )

    def forward(self, request: bytes, principal: str, host: str) -> Deferred[Outcome]:
        """Forward a client's request to the controller (see `Forwarder.forward`)."""
        return self._forwarder.forward(request, principal, host)

    def ask(self, key: int, message: object) -> Deferred[Any]:
        """Send one of the broker's own requests to the controller (see `Forwarder.ask`)."""
        return self._forwarder.ask(key, message)

    def propose(self, key: int, message: object) -> Deferred[Any]:
        """Send a partition leader's proposal to the controller, as `ask` does. It does not wait for clients'
        requests.
        """
        return self._proposer.ask(key, message)

    @property
    def progress(self) -> str:
        """Describe the progress of the start in words. Any thread."""
        lifecycle = self._lifecycle
        if lifecycle.phase is Phase.REGISTERING:
            return "not registered yet"
        caught_up = "metadata caught up" if lifecycle.caught_up else f"metadata at offset {self._applied_offset}"
        return f"registered, {caught_up}, {lifecycle.answered} heartbeats answered"

    @property
    def incarnation(self) -> bytes:
        """The id of this process, which its registration contains."""
        return self._node.incarnation

    @property
    def phase(self) -> Phase:
        """The phase of the broker's lifecycle."""
        return self._lifecycle.phase

    @property
    def fenced(self) -> bool:
        """Whether the controllers have fenced the broker."""
        return self._lifecycle.fenced

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 until it is known.

        It comes from the registration response or the metadata, whichever is first.
        """
        return max(self._lifecycle.epoch, self._epoch_told)

    @property
    def controller_id(self) -> int:
        """The id of the quorum's leader, or -1 if the leader or its id is not known."""
        quorum = self._observer.quorum
        return UNKNOWN if quorum.leader is None else quorum.leader_id

    @property
    def controller_seen(self) -> bool:
        """Whether a leader of the quorum is known."""
        return self._observer.quorum.leader is not None

    @property
    def metadata_end(self) -> int:
        """The offset after the last metadata record that is known to be committed."""
        return self._observer.committed_end

    def heard_seconds_ago(self) -> float:
        """Return the seconds since a controller accepted a heartbeat or the registration."""
        return self._lifecycle.unheard_s(self._clock.monotonic())

    def stop(self, *, controlled: bool = True) -> None:
        """Leave the cluster.

        A controlled stop first asks the controllers to elect other leaders. It waits until they have done so, or until
        none can be reached.
        """
        if controlled:
            with self._beating.lock:
                self._lifecycle.stop(self._clock.monotonic())
                self._beating.call_locked()
            self._ended.wait()
        self._stopping = True
        self._forwarder.stop()
        self._proposer.stop()
        for connection in (self._log_connection, self._beat_connection):
            if connection is not None:
                connection.abort()
        self._following.stop()
        self._beating.stop()
        for connection in (self._log_connection, self._beat_connection):
            if connection is not None:
                connection.close()

    # --- metadata, on its thread --------------------------------------------------------------------------------------

    def _follow(self) -> float | None:
        """Do one step of the metadata thread; return the seconds until the next one."""
        if self._stopping or self._fault is not None:
            return None
        try:
            return self._ask_for_metadata()
        except MetadataFault as error:
            self._fail(error)
        except Exception as error:
            logger.exception("following the cluster metadata failed")
            self._fail(error)
        return None

    def _ask_for_metadata(self) -> float:
        """Send one request for the metadata log or for a snapshot; return the seconds until the next request."""
        observer = self._observer
        try:
            connection = self._log_connection = self._opened(self._log_connection, observer.quorum.address)
            key = observer.api_key
            version = connection.version(key, FETCH_OLDEST if key == api.FETCH else 0)
            response = connection.request(key, version, observer.request(version), FETCH_TIMEOUT_S)
        except ConnectionFailed as error:
            delay_s = observer.failed()
            logger.debug("%s", error)
            return delay_s
        image, delay_s = observer.fetched(response) if key == api.FETCH else observer.snapshot(response)
        if image is not None:
            self._publish(image)
        return delay_s

    def _publish(self, image: Image) -> None:
        self._check_no_controller(image)
        before, self.image = self.image, image
        self._publishing = True
        for listener in self.listeners:
            try:
                listener(before, image)
            except MetadataFault:
                raise  # the broker must not continue without it
            except Exception:
                logger.exception("could not apply all of the metadata up to offset %d", image.offset)
        self._publishing = False
        self._applied_offset = image.offset
        with self._beating.lock:
            self._lifecycle.saw(image)
            failed = self._lifecycle.phase is Phase.FAILED
        self._note_entered()
        if failed:
            self._call_beat()

    def _check_no_controller(self, image: Image) -> None:
        """Raise MetadataFault if this broker replaces a node that was both broker and controller.

        That node is still a voter of the quorum, whose vote would be missing. An image from before this process
        registered is not checked, because the node may have been removed from the quorum since.
        """
        node = self._node
        own = image.brokers.get(node.node_id)
        if own is None or own.incarnation != node.incarnation:
            return
        self._epoch_told = own.epoch
        fixed = not image.voters and node.node_id in image.controllers  # a static quorum, which records no directories
        if fixed or image.voter_directories.get(node.node_id) == node.directory_id:
            raise MetadataFault(
                f"node.id: node {node.node_id} is a controller of the cluster, and a kafkalite broker cannot be one; "
                "remove it from the quorum (kafka-metadata-quorum.sh remove-controller) or choose another node.id"
            )

    # --- registration and heartbeats, on their thread -----------------------------------------------------------------

    def _beat(self) -> float | None:
        """Do one step of the heartbeat thread; return the seconds until the next one."""
        try:
            return self._register_or_beat()
        except Exception as error:
            logger.exception("could not send heartbeats to the controllers")
            self._fail(error)
            self._ended.set()
            return None

    def _register_or_beat(self) -> float | None:
        """Send one registration or heartbeat if it is due."""
        with self._beating.lock:
            lifecycle = self._lifecycle
            now = self._clock.monotonic()
            wait_s, ended = lifecycle.wait(now), lifecycle.ended or self._stopping
            cordons = self.image.features.get(METADATA_VERSION, 0) >= CORDON_LEVEL
            cordoned = self._cordoned() if cordons else None
            key, request = lifecycle.api_key, lifecycle.request(self._applied_offset, cordoned=cordoned)
        if ended:
            self._end()
            return None
        if wait_s > 0:
            return wait_s
        answer, why = self._ask_leader(key, request)
        with self._beating.lock:
            now, fenced = self._clock.monotonic(), lifecycle.fenced
            if answer is None:
                lifecycle.unanswered(now, why, no_controller=self._observer.quorum.leader is None)
            elif key == api.BROKER_REGISTRATION:
                lifecycle.registered(answer, now, self.image.features)
            else:
                lifecycle.beaten(answer, now)
            wait_s, ended = lifecycle.wait(now), lifecycle.ended
        if lifecycle.fenced != fenced:
            logger.info("the controllers have %s this broker", "fenced" if lifecycle.fenced else "unfenced")
        if lifecycle.caught_up:
            self._caught_up.set()
        self._note_entered()
        if ended:
            self._end()
            return None
        return wait_s

    def _ask_leader(self, key: int, request: object) -> tuple[Any, str]:
        """Return (the leader's response or None, the reason why there is none)."""
        leader = self._observer.quorum.leader
        if leader is None:
            return None, "no quorum leader is known"
        try:
            connection = self._beat_connection = self._opened(self._beat_connection, leader)
            self.controller_apis = connection.versions
            version = connection.version(key, REGISTRATION_OLDEST if key == api.BROKER_REGISTRATION else 0)
            answer = connection.request(key, version, request, self._times.beat)
        except ConnectionFailed as error:
            return None, str(error)
        refusal, self._refusal = self._refusal, (key, answer.error_code)
        if answer.error_code:
            if refusal != self._refusal:  # otherwise it is logged already
                why = in_words(answer.error_code)
                logger.info("the controller refused this broker's %s: %s", api.APIS[key].name, why)
            if answer.error_code == ErrorCode.NOT_CONTROLLER:
                connection.close()
        return answer, ""

    def _end(self) -> None:
        """Report that the last request was sent."""
        if self._lifecycle.phase is Phase.FAILED:
            kind = ControllersAway if self._lifecycle.controllers_away else StartupError
            self._fail(kind(self._lifecycle.failure))
        self._ended.set()

    # --- both ---------------------------------------------------------------------------------------------------------

    def _note_entered(self) -> None:
        """End the wait of `enter`, if the controllers have unfenced the broker and every listener was called with an
        image that shows this.
        """
        own = self.image.brokers.get(self._node.node_id)
        known = own is not None and own.epoch == self._lifecycle.epoch and not own.fenced and not self._publishing
        if known and self._lifecycle.phase is Phase.IN_SERVICE:
            self._entered.set()

    def _opened(self, connection: ControllerConnection | None, address: Address) -> ControllerConnection:
        """Return `connection` if it is open to this address, or else a new connection."""
        if connection is not None:
            if connection.address == address and not connection.closed:
                return connection
            connection.close()
        opened = self._connect(address, self._client_id, self._times.beat)
        if self._stopping:
            opened.close()
            raise ConnectionFailed("the broker is stopping")
        return opened

    def _call_beat(self) -> None:
        with self._beating.lock:
            self._beating.call_locked()

    def _fail(self, error: BaseException) -> None:
        if self._fault is not None:
            return
        self._fault = error
        self._caught_up.set()
        self._entered.set()
        if self._begun:
            self._on_fatal(error)


def find_cluster_id(controllers: Controllers, client_id: str, timeout_s: float, clock: Clock, given_up: Event) -> str:
    """Return the cluster id from the first controller that answers.

    Raises ControllersAway if no controller answers in time, and StartGivenUp if the start was given up.
    """
    give_up_at = clock.monotonic() + timeout_s
    while True:
        found, reasons = _ask_cluster_id(controllers, client_id)
        if found:
            return found
        if clock.monotonic() + NO_CONTROLLER_WAIT_S >= give_up_at:
            raise ControllersAway(f"no controller returned the cluster id: {'; '.join(once_each(reasons))}")
        if given_up.wait(NO_CONTROLLER_WAIT_S):
            raise StartGivenUp("the broker was stopped before it was ready")


def once_each(reasons: Mapping[Address, str]) -> list[str]:
    """Return each reason once, with the addresses of the nodes that gave it."""
    alike: dict[str, list[str]] = {}
    for address, reason in reasons.items():
        alike.setdefault(reason.replace(str(address), _PLACE), []).append(str(address))
    return [reason.replace(_PLACE, ", ".join(addresses)) for reason, addresses in alike.items()]


def _ask_cluster_id(controllers: Controllers, client_id: str) -> tuple[str, dict[Address, str]]:
    """Ask the controllers for the cluster id; return it, or "" and the reason of each controller that did not return
    it.
    """
    reasons = {}
    for address in dict.fromkeys((*controllers.servers, *controllers.voters.values())):
        try:
            connection = controllers.connect(address, client_id, FETCH_TIMEOUT_S)
            try:
                version = connection.version(api.DESCRIBE_CLUSTER, _ENDPOINT_TYPE_SINCE)
                request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
                answer = connection.request(api.DESCRIBE_CLUSTER, version, request, FETCH_TIMEOUT_S)
            finally:
                connection.close()
        except ConnectionFailed as error:
            reasons[address] = str(error)
            continue
        if not answer.error_code and answer.cluster_id:
            return str(answer.cluster_id), {}
        reasons[address] = f"the node at {address} is not a controller"
    return "", reasons
