"""Define and check the broker's settings for a cluster with Apache Kafka controllers.

    process.roles          the process is
    empty                  a standalone broker
    broker,controller      a standalone broker, the only voter of its quorum
    broker                 a broker in a cluster with Apache Kafka controllers

kafkalite cannot be a controller of other brokers. So the role controller alone, or with other voters, is rejected.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import BOOLEAN, INT, INT64_MAX, LIST, LONG, STRING, setting

if TYPE_CHECKING:
    from collections.abc import Collection, Container

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
VOTERS_KEY: Final = "controller.quorum.voters"
MECHANISM_KEY: Final = "sasl.mechanism.controller.protocol"
BROKERS_MECHANISM_KEY: Final = "sasl.mechanism.inter.broker.protocol"
INNER_KEY: Final = "inter.broker.listener.name"
INNER_PROTOCOL_KEY: Final = "security.inter.broker.protocol"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms with which a broker can authenticate to controllers and other brokers."""
SERVERS_KEY: Final = "controller.quorum.bootstrap.servers"
_SERVER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_ID: Final = re.compile(r"[0-9]{1,10}")
KEYS: Final = (
    SERVERS_KEY,
    VOTERS_KEY,
    INNER_KEY,
    INNER_PROTOCOL_KEY,
    BROKERS_MECHANISM_KEY,
    "initial.broker.registration.timeout.ms",
    "server.max.startup.time.ms",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "replica.lag.time.max.ms",
    "controlled.shutdown.enable",
    MECHANISM_KEY,
    "ssl.endpoint.identification.algorithm",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)
"""Settings without effect on a standalone broker."""
_NO_CONTROLLER: Final = (
    "kafkalite cannot be a controller; set process.roles=broker and name Apache Kafka controllers in "
    f"{SERVERS_KEY} or {VOTERS_KEY}"
)


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class ClusterRows:
    """Settings of a broker in a cluster with Apache Kafka controllers."""

    __slots__ = ()

    process_roles: tuple[str, ...] = setting(
        LIST,
        (),
        "`broker`: join a cluster with Apache Kafka controllers. Unset, or `broker,controller` with this"
        " process as the only voter: run standalone.",
        choices=(BROKER, CONTROLLER),
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        LIST, (), "Addresses of controllers, `host:port`; any of them returns the leader. For a broker in a cluster."
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        LIST, (), "Controllers of a static quorum, `id@host:port`. For a broker in a cluster."
    )
    inter_broker_listener_name: str | None = setting(
        STRING,
        None,
        "Name of the listener for traffic between brokers of a cluster. Unset: the listener with "
        "security.inter.broker.protocol.",
    )
    security_inter_broker_protocol: str = setting(
        STRING,
        "PLAINTEXT",
        "Security protocol of the listener for traffic between brokers of a cluster. If neither this nor "
        "inter.broker.listener.name is set, the PLAINTEXT listener is used, or the first one if there is none.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    initial_broker_registration_timeout_ms: int = setting(
        INT, 60_000, "Time limit for the registration with the controllers at a start in a cluster.", unit="ms", low=1
    )
    server_max_startup_time_ms: int = setting(
        LONG,
        INT64_MAX,
        "Time limit until the controllers unfence the broker at a start in a cluster. Clients are served from then on.",
        unit="ms",
        low=0,
    )
    replica_lag_time_max_ms: int = setting(
        INT,
        30_000,
        "Maximum time that a follower may lag behind its leader's end offset before it leaves the ISR.",
        unit="ms",
        low=1,
    )
    broker_heartbeat_interval_ms: int = setting(
        INT, 2000, "Interval between heartbeats to the controllers.", unit="ms", low=1
    )
    broker_session_timeout_ms: int = setting(
        INT,
        9000,
        "For a broker in a cluster: how long a shutdown retries controllers that do not answer. The controllers' "
        "setting of the same name decides when a broker without heartbeats is fenced.",
        unit="ms",
        low=1,
    )
    controlled_shutdown_enable: bool = setting(
        BOOLEAN, True, "Ask the controllers to move leadership to other brokers before a shutdown in a cluster."
    )

    sasl_mechanism_controller_protocol: str = setting(
        STRING,
        "GSSAPI",
        "For a broker in a cluster: SASL mechanism for controllers whose listener requires SASL, one of"
        f" {', '.join(MECHANISMS)}. Set name and password in"
        " `listener.name.<listener>.<mechanism>.sasl.jaas.config`.",
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        STRING,
        "GSSAPI",
        "For brokers in a cluster: SASL mechanism between brokers if the inter-broker listener requires"
        f" SASL, one of {', '.join(MECHANISMS)}. Set name and password in"
        " `listener.name.<listener>.<mechanism>.sasl.jaas.config`.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        STRING,
        "https",
        "Verify the host name in TLS certificates of controllers and other brokers (`https`), or do not (empty). "
        "For a broker in a cluster.",
        choices=("https", ""),
    )

    @property
    def in_cluster(self) -> bool:
        """Whether the process is a broker in a cluster with Apache Kafka controllers."""
        return self.process_roles == (BROKER,)

    def quorum_voters(self) -> dict[int, tuple[str, int]]:
        """Parse controller.quorum.voters. Return id → (host, port). ConfigError."""
        voters = {}
        for item in self.controller_quorum_voters:
            number, separator, server = item.partition("@")
            if not separator or not _ID.fullmatch(number):
                raise ConfigError(VOTERS_KEY, f"must be id@host:port, not {item[:80]!r}")
            voters[int(number)] = parse_server(VOTERS_KEY, server)
        return voters

    def quorum_servers(self) -> tuple[tuple[str, int], ...]:
        """Parse controller.quorum.bootstrap.servers. Return (host, port) pairs. ConfigError."""
        return tuple(parse_server(SERVERS_KEY, item) for item in self.controller_quorum_bootstrap_servers)


def parse_server(key: str, text: str) -> tuple[str, int]:
    """Parse host:port, where an IPv6 host is in brackets. ConfigError; `key` is the setting that the error names."""
    match = _SERVER.fullmatch(text.strip())
    if match is None or not 0 < int(match[3]) <= 65535:
        raise ConfigError(key, f"must be host:port, not {text[:80]!r}")
    return match[1] or match[2], int(match[3])


def check_alone(rows: ClusterRows, node_id: int, controller_ports: frozenset[int]) -> None:
    """Raise ConfigError if a process with the role controller is not its only voter.

    `controller_ports` are the ports of its controller listeners.
    """
    if CONTROLLER not in rows.process_roles:
        return
    if BROKER not in rows.process_roles:
        raise ConfigError("process.roles", _NO_CONTROLLER)
    voters, servers = rows.quorum_voters(), rows.quorum_servers()
    others = voters.keys() - {node_id}
    if others or len(servers) > 1 or any(port not in controller_ports for _, port in servers):
        raise ConfigError("process.roles", f"lists other voters, but {_NO_CONTROLLER}")


def inner_listener(rows: ClusterRows, given: Container[str], listeners: Collection[str]) -> str:
    """Return the name of the listener for traffic between brokers. ConfigError.

    `given` has the keys that are set. `listeners` are the names of the bound listeners. If no key is set and there is
    no listener PLAINTEXT, the first listener is used. Kafka would fail in this case. Source:
    AbstractKafkaConfig.interBrokerListenerNameAndSecurityProtocol of Kafka 4.1.
    """
    name, key = rows.inter_broker_listener_name, INNER_KEY
    if name and INNER_PROTOCOL_KEY in given:
        raise ConfigError(INNER_KEY, f"cannot be set together with {INNER_PROTOCOL_KEY}; remove one of them")
    if not name:
        name, key = rows.security_inter_broker_protocol, INNER_PROTOCOL_KEY
        if key not in given and name not in listeners:
            name = next(iter(listeners))
    if name.upper() not in listeners:
        raise ConfigError(key, f"{name.upper()} is not one of the listeners {', '.join(listeners)}")
    return name.upper()


def check_in_cluster(rows: ClusterRows, node_id: int, inner: str, controller: str | None) -> None:
    """Raise ConfigError if a setting that a broker in a cluster needs is missing or contradicts another one.

    `inner` is the security protocol between brokers. `controller` is the security protocol of the controllers'
    listener.
    """
    voters, servers = rows.quorum_voters(), rows.quorum_servers()
    if not voters and not servers:
        raise ConfigError("process.roles", f"a broker in a cluster requires {SERVERS_KEY} or {VOTERS_KEY}")
    if node_id in voters:
        raise ConfigError("node.id", f"{node_id} is the id of a controller in {VOTERS_KEY}; choose another one")
    if controller is None:
        raise ConfigError(
            "controller.listener.names", "is empty; a broker in a cluster needs the listener name of the controllers"
        )
    for key, protocol, mechanism, who in (
        (MECHANISM_KEY, controller, rows.sasl_mechanism_controller_protocol, "the controllers have"),
        (BROKERS_MECHANISM_KEY, inner, rows.sasl_mechanism_inter_broker_protocol, "the brokers' listener has"),
    ):
        if protocol.startswith("SASL") and mechanism not in MECHANISMS:
            raise ConfigError(key, f"must be one of {', '.join(MECHANISMS)}, not {mechanism[:64]!r}: {who} SASL")
