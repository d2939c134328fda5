"""Run a broker for tests of programs that use Kafka, in its own process or in this process.

    with KafkaBroker() as broker:
        broker.create_topic("orders", 3)
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        broker.restart(kill=True)

The fixture `kafka_broker` is a KafkaBroker. By default the broker runs in its own process. So tests that fake time,
files or sockets, or that fork, do not affect it. With `in_process=True` it runs in pytest's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from kafkalite.broker.log.manager import LogManager
    from kafkalite.errors import ErrorCode, KafkaError
    from kafkalite.model import Endpoint
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.testing.faults import Faults
    from kafkalite.testing.in_process import InProcessBroker
    from kafkalite.testing.own_process import OwnProcess, RemoteEvent

IN_PROCESS: Final = "in_process"
"""The option's name, also accepted in the fixture's settings. No setting of Kafka contains an underscore."""
OBJECTS: Final = ("clock", "companions", "retention_policies")
"""Arguments of Broker that are objects."""


@runtime_checkable
class Fault(Protocol):
    """A fault that a test has requested. `end`, or the end of a `with` block, removes it."""

    key: int

    @property
    def count(self) -> int:
        """The number of requests that this fault has affected."""

    @property
    def ended(self) -> bool:
        """Whether the fault has affected all its `times` requests. Removing the fault does not change this."""

    def end(self) -> None:
        """Remove the fault. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class KafkaBroker:
    """A broker that a test can restart, kill and make fail. It has the arguments and members of `kafkalite.Broker`.

    By default it runs in its own process, with `in_process=True` in this one. The properties `logs`, `config` and
    `faults`, and arguments that are objects, require `in_process=True`.

    The broker of the fixture `kafka_broker` acknowledges acks=all from the page cache (`flush_on_acks_all=False`),
    because tests do not survive a power failure anyway. A KafkaBroker that a test creates syncs to disk first, as
    Broker does.
    """

    def __init__(
        self,
        config: BrokerConfig | Mapping[str, object] | None = None,
        *,
        in_process: bool | None = None,
        **settings: object,
    ) -> None:
        given = None if config is None else dict(config if isinstance(config, Mapping) else config.static_texts)
        asked = False if given is None else given.pop(IN_PROCESS, False)
        self._here: InProcessBroker | None = None
        self._there: OwnProcess | None = None
        if str(asked if in_process is None else in_process).lower() == "true":
            from kafkalite.testing.in_process import InProcessBroker

            self._here = InProcessBroker(given if isinstance(config, Mapping) else config, **settings)
            return
        for name in OBJECTS:
            if settings.pop(name, None):
                _refuse(f"the argument {name}")
        if settings and not isinstance(config, Mapping | None):
            raise TypeError("pass either a BrokerConfig or individual settings, not both")
        from kafkalite.settings.rows import key_of
        from kafkalite.testing.own_process import OwnProcess

        self._there = OwnProcess((given or {}) | {key_of(name): value for name, value in settings.items()})

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def in_process(self) -> bool:
        """Whether the broker runs in this process."""
        return self._here is not None

    def start(self) -> Self:
        """Start the broker. On return it serves clients. StartupError has the reason if it cannot start."""
        self._do("start")
        return self

    def stop(self, reason: str = "stop was called") -> None:
        """Stop the broker. Its process ends, and its port is free. The log contains `reason`. Idempotent."""
        self._do("stop", reason)

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start the broker, on the same port and with the same data. Clients lose their connections.

        With `kill` the broker stops as in a crash of its process: nothing is flushed, no client gets another response,
        and the start runs recovery. Acknowledged records are not lost.
        """
        self._do("restart", kill=kill)

    def give_up_start(self) -> None:
        """End a start that is waiting for a cluster. `start` then raises StartGivenUp. Any thread."""
        self._do("give_up_start")

    def fail(
        self, api: str | int, code: ErrorCode | int | str | type[KafkaError] | KafkaError, times: int | None = 1
    ) -> Fault:
        """Answer the next `times` requests of an API with an error, without executing them.

        `api` is Kafka's name ("Produce", "OffsetCommit") or the API key. `code` is the error's name, its number, or one
        of kafkalite's exceptions. With `times=None` the fault lasts until it is ended. On return the fault is active.
        ValueError for an unknown API or error.

        Each topic, partition or group of the request gets the error. A Produce with acks=0 has no response, so its
        connection is closed, as in Kafka.
        """
        return self._fault("fail", api, code, times)

    def disconnect(self, api: str | int, times: int | None = 1) -> Fault:
        """Close the connection of the next `times` requests of an API, without executing or answering them."""
        return self._fault("disconnect", api, times)

    def delay(self, api: str | int, seconds: float, times: int | None = None) -> Fault:
        """Delay the responses to an API by `seconds`. The requests are executed at once.

        Later responses of the same connections wait, too. With `times=None` the delay lasts until it is ended.
        """
        return self._fault("delay", api, seconds, times)

    def heal(self) -> None:
        """End every fault. Delayed responses are sent at once."""
        self._do("heal")

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic. Settings have Kafka's names, with underscores: `retention_ms=1000`. Raises KafkaError."""
        self._do("create_topic", name, partitions, **settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._do("delete_topic", name)

    def add_user(self, user: str, password: str) -> None:
        """Set a user's password for SCRAM-SHA-256 and SCRAM-SHA-512. Create the user if necessary."""
        self._do("add_user", user, password)

    def reload_certificates(self) -> None:
        """Load the certificates of TLS listeners again from their files."""
        self._do("reload_certificates")

    def loops_turned(self) -> threading.Event | RemoteEvent:
        """Return an event that is set once every network worker has completed one more loop turn."""
        event: threading.Event | RemoteEvent = self._do("loops_turned")
        return event

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return str(self._get("bootstrap_servers"))

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return int(self._get("port"))

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The advertised addresses by listener name. The names are in capitals."""
        found: dict[str, Endpoint] = self._get("endpoints")
        return found

    @property
    def classic_endpoint(self) -> Endpoint | None:
        """The address for Kafka 0.7's clients; None without a kafka07:// listener."""
        found: Endpoint | None = self._get("classic_endpoint")
        return found

    @property
    def metrics_urls(self) -> list[str]:
        """The URLs at which metrics are served, without the path `/metrics`."""
        return list(self._get("metrics_urls"))

    @property
    def progress(self) -> str:
        """A description of the start's progress; empty if there is nothing to report. Any thread."""
        return str(self._get("progress"))

    @property
    def running(self) -> bool:
        """Whether the broker was started and not stopped since."""
        return bool(self._get("running"))

    @property
    def connection_count(self) -> int:
        """The number of open client connections."""
        return int(self._get("connection_count"))

    @property
    def failed(self) -> threading.Event | RemoteEvent:
        """An event that is set when the broker cannot continue."""
        return self._here.failed if self._here is not None else self._process.failed

    @property
    def logs(self) -> LogManager:
        """The log directory of a started broker; only with `in_process=True`."""
        return self._here.logs if self._here is not None else _refuse("logs")

    @property
    def config(self) -> BrokerConfig:
        """The effective settings; only with `in_process=True`."""
        return self._here.config if self._here is not None else _refuse("config")

    @property
    def faults(self) -> Faults:
        """All faults; only with `in_process=True`."""
        return self._here.faults if self._here is not None else _refuse("faults")

    @property
    def flushes_on_acks_all(self) -> bool:
        """Whether acks=all is acknowledged only after a sync to the disk (`flush.on.acks.all`)."""
        return self._here.config.flush_on_acks_all if self._here is not None else bool(self._process.get("flushes"))

    @property
    def _process(self) -> OwnProcess:
        assert self._there is not None
        return self._there

    def _do(self, name: str, *arguments: object, **named: object) -> Any:
        if self._here is not None:
            return getattr(self._here, name)(*arguments, **named)
        return self._process.do(name, *arguments, **named)

    def _get(self, name: str) -> Any:
        return getattr(self._here, name) if self._here is not None else self._process.get(name)

    def _fault(self, name: str, *arguments: object) -> Fault:
        fault: Fault = self._do(name, *arguments)
        return fault


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(
        f"{what} cannot be passed to a broker in a separate process; use KafkaBroker(in_process=True), or "
        '{"in_process": True} in kafka_broker_settings'
    )
