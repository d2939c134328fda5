"""Parse the settings `listeners` and `advertised.listeners` into addresses and security protocols.

    listeners=kafka://127.0.0.1:9092            kafkalite's form; the listener is named KAFKA
    listeners=PLAINTEXT://:9092                 Kafka's form; no host means every interface
    listeners=kafka://:9092,kafka07://:9072     Kafka 0.7's protocol needs a separate port
    listeners=ssl://:9093                       Kafka's protocol through TLS
    listeners=sasl://:9094,sasl+ssl://:9095     authentication by SASL, in plain text and through TLS
    listeners=IN://:29092,OUT://:9092           custom names: listener.security.protocol.map=IN:PLAINTEXT,OUT:SSL

Unsupported protocols are rejected. Parsing uses neither DNS nor sockets. Only `Listener.endpoint` may need the
machine's host name: for a listener that is bound to every interface and not advertised.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.model import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY: Final = "listeners"
ADVERTISED_KEY: Final = "advertised.listeners"
MAP_KEY: Final = "listener.security.protocol.map"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_SHORT: Final = {"SASL": "SASL_PLAINTEXT"}
"""Listener name → its protocol, unless the map has another one."""

_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_]*|[Ss][Aa][Ss][Ll]\+[Ss][Ss][Ll])://(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[A-Za-z0-9._-]*):(?P<port>-?[0-9]{1,5})/?"
)
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared with, not bound


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to bind or to advertise. An empty `host` means every interface; IPv6 has no brackets."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    """One of PROTOCOLS."""

    @property
    def tls(self) -> bool:
        """Whether the listener uses TLS."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        """Whether clients of the listener authenticate by SASL."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def classic(self) -> bool:
        """Whether the listener is for Kafka 0.7's protocol."""
        return self.name == "KAFKA07"

    def endpoint(self, bound_port: int) -> Endpoint:
        """Return the address that clients receive. `bound_port` is used if the listener's port is 0."""
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        return Endpoint(self.name, host, self.port or bound_port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(text: str, protocol_map: str, controller_names: Iterable[str] = ()) -> tuple[Listener, ...]:
    """Parse `listeners`. Return the listeners that this broker binds, without those of controllers.

    ConfigError if there is none, or if one is malformed or has an unsupported protocol.
    """
    protocols = _parse_protocol_map(protocol_map)
    controllers = {name.upper() for name in controller_names}
    found = [item for item in _parse(KEY, text) if item.name not in controllers]
    if not found:
        raise ConfigError(KEY, "contains no listener to bind")
    found = [replace(item, protocol=_protocol_of(item, protocols)) for item in found]
    _check_distinct(KEY, found)
    bound = [(item.host, item.port) for item in found if item.port]
    for address in bound:
        if bound.count(address) > 1:
            raise ConfigError(KEY, f"port {address[1]} is used twice; give each listener its own port")
    return tuple(found)


def parse_names(text: str) -> list[Listener]:
    """Parse `listeners`, including listeners of controllers, without determining protocols. ConfigError."""
    return _parse(KEY, text)


def protocol_of(controller: str, protocol_map: str) -> str:
    """Return the security protocol of a controller listener.

    As in Kafka, it is the one in the protocol map, or else the listener's name if it is a protocol, or else PLAINTEXT.
    """
    name = controller.upper()
    return _parse_protocol_map(protocol_map).get(name, name if name in PROTOCOLS else "PLAINTEXT")


def parse_advertised(text: str | None, listeners: Iterable[Listener]) -> dict[str, Listener]:
    """Parse `advertised.listeners`. Return name → address of the listeners that this broker binds. ConfigError."""
    if not text:
        return {}
    names = {item.name for item in listeners}
    found = _parse(ADVERTISED_KEY, text)
    _check_distinct(ADVERTISED_KEY, found)
    for item in found:
        if item.host in {"0.0.0.0", "::"}:  # noqa: S104  # refused, not bound
            raise ConfigError(ADVERTISED_KEY, f"{item.host} is not an address that clients can connect to")
    known = {item.name: item for item in found if item.name in names}
    if not known:
        raise ConfigError(ADVERTISED_KEY, f"must name one of the listeners {', '.join(sorted(names))}")
    return known


def _parse(key: str, text: str) -> list[Listener]:
    return [_parse_one(key, item.strip()) for item in text.split(",") if item.strip()]


def _parse_one(key: str, item: str) -> Listener:
    match = _LISTENER.fullmatch(item)
    if match is None:
        raise ConfigError(key, f"must be name://host:port, such as kafka://127.0.0.1:9092, not {item[:80]!r}")
    port = int(match["port"])
    if not 0 <= port <= 65535:
        raise ConfigError(key, f"port {port} is not between 0 and 65535")
    return Listener(match["name"].upper().replace("+", "_"), match["host"].strip("[]"), port)


def _parse_protocol_map(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = item.partition(":")
        if not separator:
            raise ConfigError(MAP_KEY, f"must be name:protocol, not {item!r}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _protocol_of(item: Listener, protocols: Mapping[str, str]) -> str:
    if item.classic:
        return "PLAINTEXT"
    if item.name in {"KAFKA", "PLAINTEXT"}:
        return "PLAINTEXT"
    protocol = protocols.get(item.name, _SHORT.get(item.name, item.name))
    if protocol not in PROTOCOLS:
        raise ConfigError(KEY, f"listener {item.name} has no protocol; add {item.name}:PROTOCOL to {MAP_KEY}")
    return protocol


def parse_limits(text: str) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides. Return address → maximum number of connections. ConfigError."""
    limits: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, separator, count = item.rpartition(":")
        if not separator or not address or not count.isdecimal():
            raise ConfigError("max.connections.per.ip.overrides", f"must be address:count, not {item!r}")
        limits[address.strip("[]")] = int(count)
    return limits


def _check_distinct(key: str, found: list[Listener]) -> None:
    names = [item.name for item in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, f"listener name {name} is used twice; give each listener its own name in {MAP_KEY}")
