"""Run one member of a consumer group by a policy, from opening its client to closing it.

Thread rule: the member uses the calling thread until it ends; any thread may set `stop`.
"""

from __future__ import annotations

import importlib
import inspect
import random
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client import Client, GroupReader
from kafkalite.client.security import Security
from kafkalite.errors import StartupError
from kafkalite.failures.adapters.adoption import security_of, servers_of
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.arguments import RUN_ARGUMENTS, refuse_unknown
from kafkalite.failures.runner import Runner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from kafkalite.failures.events import Alarm, Failure, Message
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.runner import Port

BOOTSTRAP: Final = "127.0.0.1:9092"
KAFKALITE: Final = "kafkalite"
CLIENTS: Final = (KAFKALITE, "confluent-kafka", "kafka-python", "aiokafka")
PACKAGES: Final = {"cimpl": "confluent-kafka", "kafka": "kafka-python", "aiokafka": "aiokafka"}
"""Top-level package of a consumer's class → the client's name."""
ADAPTERS: Final = {
    "confluent-kafka": "kafkalite.failures.adapters.confluent",
    "kafka-python": "kafkalite.failures.adapters.kafka_python",
    "aiokafka": "kafkalite.failures.adapters.aio",
}
SESSION_TIMEOUT_S: Final = 15.0
MEMBERS_OWN: Final = frozenset({"on_assigned", "on_revoked", "on_lost", "isolation", "reset", "raises_truncation"})
"""Options of a GroupReader that the member sets itself."""


def run(
    policy: Policy,
    handler: Callable[..., Any],
    bootstrap_servers: str | Iterable[str] | None = None,
    *,
    stop: threading.Event | None = None,
    member: str | None = None,
    workers: int = 1,
    loop: asyncio.AbstractEventLoop | None = None,
    dead: Callable[..., Any] | None = None,
    security: Security | Mapping[str, str] | None = None,
    client: str = KAFKALITE,
    consumer: Any = None,
    on_alarm: Callable[[Alarm], None] | None = None,
    on_failed: Callable[[Message, Failure], object] | None = None,
    on_moved: Callable[[Message, str, str], object] | None = None,
    create_topics: bool = True,
    on_start: Callable[[Runner], None] | None = None,
    **options: Any,
) -> str:
    """Handle records by the policy until `stop` is set. Return "", or the reason why the policy stopped the member.

    `handler`   function or coroutine function: `f(record)` or `f(record, transaction)`; with `batch`, lists of records
    `bootstrap_servers`   "host:port,…" or a list; default: the servers of `consumer`, or 127.0.0.1:9092
    `member`    a name that makes this a static member (KIP-345): after a restart it gets its partitions back at once
    `security`  TLS and SASL: a Security, or Kafka client settings such as {"security.protocol": "SASL_SSL", …}.
                Default: the settings of `consumer`, if this call names no other servers
    `client`    client for the records: "kafkalite", "confluent-kafka", "kafka-python" or "aiokafka"
    `consumer`  consumer configuration of that client, with its TLS and SASL settings, under the client's names. Or a
                KafkaConsumer of kafka-python or an AIOKafkaConsumer, whose class selects the client. A configuration
                without bootstrap servers uses those of this call
    `on_start`  called with the Runner before it starts, for example to read its metrics
    `options`   options of a GroupReader; only with kafkalite's client

    The other arguments are those of Runner. Errors: TypeError for an unknown option, ValueError or ConfigError for bad
    settings, StartupError if a client or topic is missing, KafkaError.
    """
    refuse_unknown("run", options, [*RUN_ARGUMENTS, *_reader_options()])
    client = _client_of(client, consumer, options)
    servers, security = _place_of(bootstrap_servers, security, client, consumer)
    name = member or f"{random.getrandbits(48):012x}"
    transactional_id = f"kafkalite-failures-{policy.group}-{name}"
    with (
        Client(servers, client_id="kafkalite-failures", security=security) as reading,
        reading.twin() as other,
    ):
        port: Port
        if client == KAFKALITE:
            if member is not None:
                options.setdefault("instance_id", member)
            port = ColumnarPort(reading, transactional_id, **{"session_timeout_s": SESSION_TIMEOUT_S, **options})
        else:
            port = _other_port(client, consumer, servers, transactional_id, member)
        runner = Runner(
            policy,
            handler,
            port,
            other,
            member=name,
            workers=workers,
            loop=loop,
            dead=dead,
            on_alarm=on_alarm,
            on_failed=on_failed,
            on_moved=on_moved,
            create_topics=create_topics,
        )
        if on_start is not None:
            on_start(runner)
        return runner.run(stop or threading.Event())


def _reader_options() -> list[str]:
    """Return the names of the GroupReader options that a caller may set."""
    parameters = inspect.signature(GroupReader).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in MEMBERS_OWN]


def _client_of(client: str, consumer: Any, options: Mapping[str, Any]) -> str:
    """Return the name of the client library, as given or from the class of the consumer. Raises ValueError."""
    if client == KAFKALITE and consumer is not None:
        packages = [kind.__module__.partition(".")[0] for kind in type(consumer).__mro__]
        client = next((PACKAGES[name] for name in packages if name in PACKAGES), KAFKALITE)
    if client not in CLIENTS:
        raise ValueError(f"client must be one of {', '.join(map(repr, CLIENTS))}, not {client!r}")
    if client == KAFKALITE and consumer is not None:
        raise ValueError(
            "consumer= is for other clients than kafkalite's; name the client, such as client='kafka-python'"
        )
    if client != KAFKALITE and options:
        raise ValueError(f"{', '.join(options)} apply only to kafkalite's client; for {client}, set them in consumer=")
    return client


def _place_of(
    servers: str | Iterable[str] | None, security: Security | Mapping[str, str] | None, client: str, consumer: Any
) -> tuple[str | Iterable[str], Security | None]:
    """Return servers and security settings for kafkalite's client, from the call or else from the consumer's
    configuration.
    """
    settings: Mapping[str, Any] = {} if consumer is None else _settings_of(client, consumer)
    theirs = servers_of(settings)
    if security is None and (servers is None or theirs is None):
        security = security_of(settings)
    if security is not None and not isinstance(security, Security):
        security = Security(security)
    return servers or theirs or BOOTSTRAP, security


def _settings_of(client: str, consumer: Any) -> Mapping[str, Any]:
    """Return the configuration of a consumer.

    Raises TypeError for an object that does not expose it, StartupError if the client is not installed.
    """
    if isinstance(consumer, Mapping):
        return consumer
    try:
        adapter = importlib.import_module(ADAPTERS[client])
    except ImportError as error:
        raise StartupError(f"client {client!r} is not installed: {error}") from error
    found: Mapping[str, Any] = adapter.settings_of(consumer)
    return found


def _other_port(
    client: str, consumer: Any, bootstrap_servers: str | Iterable[str], transactional_id: str, member: str | None
) -> Port:
    """Create the adapter of another client library. Raises StartupError if the library is not installed."""
    if consumer is None or isinstance(consumer, Mapping):
        text = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        given = {"bootstrap_servers": text, **({} if member is None else {"group_instance_id": member})}
        if client == "confluent-kafka":
            given = {name.replace("_", "."): value for name, value in given.items()}
        consumer = {**given, **(consumer or {})}
    try:
        if client == "confluent-kafka":
            from kafkalite.failures.adapters.confluent import ConfluentPort

            return ConfluentPort(consumer, transactional_id)
        if client == "kafka-python":
            from kafkalite.failures.adapters.kafka_python import KafkaPythonPort

            return KafkaPythonPort(consumer, transactional_id)
        from kafkalite.failures.adapters.aio import AioPort

        return AioPort(consumer)
    except ImportError as error:
        raise StartupError(f"client {client!r} is not installed: {error}") from error
