"""Run a broker inside this process: settings, start and stop, topics and users.

`kafkalite.broker.composition` builds the parts of the broker. No other module of the broker imports this module.

Thread rule: any thread may start and stop a Broker. A `stop` during another thread's `start` waits until the start has
ended. If the start is waiting for a cluster, `stop` ends it at once.
"""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from kafkalite._native.base import native_time as time
from kafkalite.base import forks
from kafkalite.base.available_memory import MIB, cgroup_limit
from kafkalite.base.clock import SystemClock
from kafkalite.base.logging import fields, forget_repeats
from kafkalite.broker.composition import Composition
from kafkalite.broker.limits import budget
from kafkalite.broker.log.retention import named_policies
from kafkalite.broker.process import address_space_limit, load_libraries, raise_descriptor_limit, warm_up_soon
from kafkalite.broker.replaced_functions import check_system
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.rows import key_of, to_text
from kafkalite.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from kafkalite.base.clock import Clock
    from kafkalite.base.metric_families import Family
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.retention import RetentionPolicy
    from kafkalite.broker.net.listener import BoundListener
    from kafkalite.broker.net.worker import Worker
    from kafkalite.model import Endpoint
    from kafkalite.settings.listeners import Listener

logger = logging.getLogger("kafkalite.broker")


class Companion(Protocol):
    """A client that runs in the broker's process, such as a mirror.

    A companion starts when clients are served, and stops before the broker stops.
    """

    def start(self, bootstrap_servers: str) -> None:
        """Start. The broker serves at these addresses."""

    def stop(self) -> None:
        """Stop, since the broker is about to stop. Idempotent; also called without a `start`."""

    def families(self) -> Iterable[Family]:
        """Yield metrics, both while the companion runs and afterwards."""

    def notes(self) -> list[str]:
        """Return notes for the broker's health page. A note does not make the broker unready."""


class Broker:
    """A Kafka broker inside this process.

    Usable as a context manager. `Broker()` alone listens on a free port of 127.0.0.1, and stores its data in a
    temporary directory that `stop` removes. With process.roles=broker it is a member of a cluster whose controllers are
    Apache Kafka's (`kafkalite.broker.cluster`).

    Settings are a BrokerConfig, a mapping with Kafka's names, or keyword arguments with underscores:
    `Broker(num_partitions=3, log_dirs="/var/lib/kafkalite")`. `retention_policies` decide what to delete, in addition
    to age, size and log.retention.policies (`kafkalite.RetentionPolicy`). `companions` are clients that run while the
    broker serves.

    A Broker belongs to the process that starts it. In a forked child it is not running, and `stop` does nothing.
    Methods that would change it raise RuntimeError. `bootstrap_servers` still returns the parent's addresses.
    """

    def __init__(
        self,
        config: BrokerConfig | Mapping[str, object] | None = None,
        *,
        clock: Clock | None = None,
        retention_policies: Iterable[RetentionPolicy] = (),
        companions: Iterable[Companion] = (),
        **settings: object,
    ) -> None:
        self._temporary: str | None = None
        self._origin = forks.Origin()
        self._companions = tuple(companions)
        if isinstance(config, BrokerConfig):
            if settings:
                raise TypeError("pass either a BrokerConfig or single settings, not both")
            self.config = config
        else:
            texts = dict(config or {}) | {key_of(name): value for name, value in settings.items()}
            texts.setdefault("listeners", "kafka://127.0.0.1:0")
            if not {"log.dirs", "log.dir"} & texts.keys():
                import tempfile

                self._temporary = tempfile.mkdtemp(prefix="kafkalite-")
                texts["log.dirs"] = self._temporary
            try:
                self.config = BrokerConfig.load(overrides=texts)
            except BaseException:
                self._remove_temporary()
                raise
        try:
            self._policies = (*retention_policies, *named_policies(self.config.log_retention_policies))
        except BaseException:
            self._remove_temporary()
            raise
        self.clock: Clock = clock or SystemClock()
        self.failed = threading.Event()
        """Set when the broker cannot continue, for example because a listener's thread has failed: stop the broker."""
        self._life = threading.RLock()  # held while it starts or stops
        self._given_up = threading.Event()  # the start should end early
        self._faults: object | None = None  # injected into requests, in a broker under test: kafkalite.testing
        self._parts: Composition | None = None

    @property
    def logs(self) -> LogManager:
        """The log directory of a started broker."""
        self._check_own()
        logs = None if self._parts is None else self._parts.logs
        if logs is None:
            raise RuntimeError("the broker is not running")
        return logs

    @property
    def _listeners(self) -> list[BoundListener]:
        return [] if self._parts is None else self._parts.listeners

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: host:port of every listener, without the listener of Kafka 0.7.

        If some of these listeners have neither TLS nor SASL, only those are included.
        """
        listeners = [bound for bound in self._listeners if not bound.classic]
        plain = [bound for bound in listeners if bound.tls is None and bound.sasl is None]
        return ",".join(str(bound.endpoint) for bound in plain or listeners)

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The advertised addresses by listener name. The names are in capitals."""
        return {bound.name: bound.endpoint for bound in self._listeners}

    def reload_certificates(self) -> None:
        """Load the certificates of every TLS listener again. If this fails, log the error and keep the current
        certificates."""
        self._check_own()
        if self._parts is not None:
            self._parts.reload_certificates()

    @property
    def metrics_urls(self) -> list[str]:
        """The URLs at which metrics are served, without the path `/metrics`."""
        return [] if self._parts is None or self._parts.metrics is None else self._parts.metrics.urls

    @property
    def progress(self) -> str:
        """Return a description of the start's progress. It is "" before the data directory is opened and after the
        start. Any thread."""
        parts = self._parts
        return "" if parts is None or parts.acceptor is not None else parts.progress

    def loops_turned(self) -> threading.Event:
        """Return an event that is set once every network worker has completed one more loop turn. Any thread."""
        self._check_own()
        turned, lock, left = (
            threading.Event(),
            threading.Lock(),
            set(self._parts.workers if self._parts is not None else ()),
        )

        def turn(worker: Worker) -> None:
            with lock:
                left.discard(worker)
                if not left:
                    turned.set()

        for worker in tuple(left):
            worker.mailbox.put(functools.partial(turn, worker))
        return turned

    @property
    def classic_endpoint(self) -> Endpoint | None:
        """The address for Kafka 0.7's clients, or None without a kafka07:// listener."""
        return next((bound.endpoint for bound in self._listeners if bound.classic), None)

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._listeners[0].port

    @property
    def running(self) -> bool:
        """Whether the broker was started and not stopped since."""
        return self._origin.is_here and self._parts is not None and self._parts.acceptor is not None

    @property
    def connection_count(self) -> int:
        """The number of open client connections."""
        acceptor = None if self._parts is None else self._parts.acceptor
        return 0 if acceptor is None else acceptor.connection_count

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic. Settings are Kafka's, with underscores: `retention_ms=1000`. Raises KafkaError."""
        self._check_alone()
        overrides = {key_of(attribute): to_text(value) for attribute, value in settings.items()}
        self.logs.create_topic(name, partitions, overrides)

    def add_user(self, user: str, password: str) -> None:
        """Set a user's password for SCRAM-SHA-256 and SCRAM-SHA-512. Create the user if necessary. Effective at
        once."""
        self._check_alone()
        from kafkalite.broker.log.journal import credential_change
        from kafkalite.security.scram import HASHES, new_credential

        changes = [credential_change(mechanism, user, new_credential(mechanism, password)) for mechanism in HASHES]
        self.logs.metadata.alter_credentials(lambda: changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._check_alone()
        self.logs.delete_topic(name)

    def _check_own(self) -> None:
        if not self._origin.is_here:
            raise RuntimeError(self._origin.refusal("broker"))

    def _check_alone(self) -> None:
        self._check_own()
        if self.config.in_cluster:
            raise RuntimeError("the controllers manage the topics and users of a cluster; use an admin client")

    def start(self) -> Self:
        """Start the broker. On return clients are served, and in a cluster the broker is unfenced.

        Raises StartupError with one sentence, or its subclass StartGivenUp if the start was given up.
        """
        if self._parts is not None:
            self._check_own()
        with self._life:
            if self.running:
                raise RuntimeError("the broker is already running")
            check_system()
            self._origin = forks.Origin()
            self._given_up.clear()
            forget_repeats()
            descriptor_count_max = raise_descriptor_limit()
            try:
                load_libraries()
                self._start(descriptor_count_max)
            except BaseException:
                self._stop_parts()
                self._remove_temporary()
                raise
        return self

    def _start(self, descriptor_count_max: int) -> None:
        began = time.monotonic()
        for note in self.config.notes:
            logger.info("%s", note)
        self._parts = parts = Composition(
            self.config,
            self.clock,
            policies=self._policies,
            sources=[companion.families for companion in self._companions],
            notes=[companion.notes for companion in self._companions],
            place=self._place,
            faults=self._faults,
            descriptor_count_max=descriptor_count_max,
            given_up=self._given_up,
            failed=self.failed,
        )
        parts.start()
        for companion in self._companions:
            companion.start(self.bootstrap_servers)
        warm_up_soon()
        self._tell_memory()
        self._tell_serving(began)

    def _place(self, wanted: Listener) -> Listener:
        """Return the listener to bind for a configured one: the same. Subclasses may replace it, to keep a port."""
        return wanted

    def _tell_memory(self) -> None:
        budget.report(
            self.config,
            clients=self.config.broker_memory_max,
            partition_count=sum(1 for _ in self.logs.logs()),
            memory_limit=cgroup_limit(),
            address_space_limit=address_space_limit(),
        )

    def _tell_serving(self, began: float) -> None:
        config, logs = self.config, self.logs
        logger.info(
            "kafkalite %s serves %s",
            VERSION,
            ", ".join(f"{name}://{endpoint}" for name, endpoint in self.endpoints.items()),
            extra=fields(
                data=str(config.data_directory),
                partitions=sum(1 for _ in logs.logs()),
                memory_max=f"{config.broker_memory_max // MIB} MiB",
                last_stop="clean" if logs.clean_start else "unclean: logs were checked",
                seconds=round(time.monotonic() - began, 3),
            ),
        )

    def give_up_start(self) -> None:
        """End a start that waits for a cluster; it raises StartGivenUp. Otherwise do nothing. Any thread."""
        self._given_up.set()
        parts = self._parts
        if parts is not None and parts.cluster is not None:
            parts.cluster.give_up()

    def stop(self, reason: str = "stop was called") -> None:
        """Answer parked requests, close every connection and flush every log. Idempotent. `reason` is logged."""
        if not self._origin.is_here:
            return
        self.give_up_start()
        with self._life:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        began, ran = time.monotonic(), self._parts is not None and self._parts.logs is not None
        clean = self._stop_parts()
        if ran:
            logger.log(
                logging.INFO if clean else logging.WARNING,
                "kafkalite stopped: %s",
                reason,
                extra=fields(
                    clean="yes" if clean else "no: the next start checks the logs",
                    seconds=round(time.monotonic() - began, 3),
                ),
            )
        self._remove_temporary()

    def _stop_parts(self, *, crash: bool = False) -> bool:
        """Stop the running parts. Return whether the logs were closed cleanly.

        With `crash`, stop as at the end of the process: send no responses, and close nothing in order.
        """
        parts = self._parts
        if parts is not None and parts.told is not None:
            parts.told.stopping = True
        for companion in self._companions:
            companion.stop()
        try:
            return parts is None or parts.stop(crash=crash)
        finally:
            self._parts = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            import shutil  # it loads two compressors, which a broker with a configured directory does not need

            shutil.rmtree(Path(self._temporary), ignore_errors=True)
            self._temporary = None
