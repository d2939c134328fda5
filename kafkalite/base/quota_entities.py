"""Define the entities and keys of quotas, and check quotas (Kafka's ClientQuotaControlManager and QuotaConfig).

An entity is a user, a client id, a user with a client id, or an IP address. A quota for the name None applies to each
name that has no quota itself. Each key limits one rate per second:

    producer_byte_rate          bytes of Produce requests; a whole number
    consumer_byte_rate          bytes of Fetch responses; a whole number
    request_percentage          thread time; 100 is one thread
    controller_mutation_rate    partitions that are created and deleted
    connection_creation_rate    new connections; only for IP addresses; a whole number
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_LONG_MAX: Final = float(2**63 - 1)
_INT_MAX: Final = float(2**31 - 1)
CLIENT_KEYS: Final[dict[str, float | None]] = {
    PRODUCER_BYTE_RATE: _LONG_MAX,
    CONSUMER_BYTE_RATE: _LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Keys of users and client ids → the largest value of a whole number, or None if fractions are allowed."""
ADDRESS_KEYS: Final[dict[str, float | None]] = {CONNECTION_CREATION_RATE: _INT_MAX}
"""The same for IP addresses."""
_FRACTION_MAX: Final = 1e-6
"""Rounding error that is tolerated in a whole number, as in Kafka."""

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs sorted by type, each type once."""


class Change(NamedTuple):
    """A change of one quota: a new value, or None to remove the quota."""

    entity: Entity
    key: str
    value: float | None

    def fields(self) -> dict[str, Any]:
        """Return the change as a JSON object, which `from_fields` parses."""
        return {"entity": dict(self.entity), "key": self.key, "value": self.value}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Change:
        """Create a change from the JSON object that `fields` returns.

        ValueError if the quota is invalid. KeyError or TypeError if the object has another structure.
        """
        names: dict[str, str | None] = dict(fields["entity"])
        value = fields["value"]
        if not all(isinstance(name, str | None) for name in names.values()):
            raise TypeError(f"{names!r:.200} does not map entity types to names")
        change = cls(entity_of(names.items()), str(fields["key"]), None if value is None else float(value))
        try:
            check_entity(change.entity)
            check_value(change)
        except InvalidRequest as error:
            raise ValueError(f"{fields!r:.200} is not a quota: {error}") from None
        return change


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity with these (type, name) pairs. If a type occurs twice, the last name counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def entity_text(entity: Entity) -> str:
    """Return a description of the entity for error messages."""
    return ", ".join(f"{kind} {'(default)' if name is None else repr(name[:64])}" for kind, name in entity) or "(none)"


def check_entity(entity: Entity) -> None:
    """Raise InvalidRequest if the entity cannot have quotas. The syntax of IP addresses is not checked."""
    if not entity:
        raise InvalidRequest("a quota applies to a user, a client id, both, or an IP address; the entity is empty")
    for kind, name in entity:
        if kind not in TYPES:
            raise InvalidRequest(f"unknown quota entity type {kind[:64]!r}; expected one of {', '.join(TYPES)}")
        if name == "":
            raise InvalidRequest(f"the {kind} name is empty; send null for the default")
    if len(entity) > 1 and any(kind == IP for kind, _ in entity):
        raise InvalidRequest("an IP quota cannot be combined with a user or client id")


def check_value(change: Change) -> None:
    """Raise InvalidRequest if the entity cannot have a quota with this key and value. A removal is always valid."""
    keys = ADDRESS_KEYS if change.entity[0][0] == IP else CLIENT_KEYS
    value = change.value
    if value is None:
        return
    if change.key not in keys:
        raise InvalidRequest(
            f"unknown quota {change.key[:64]!r} for {entity_text(change.entity)}; expected one of {', '.join(keys)}"
        )
    largest = keys[change.key]
    if not value > 0.0 or math.isinf(value):
        raise InvalidRequest(f"{change.key} must be a number above 0")
    if largest is not None:
        if value > largest:
            raise InvalidRequest(f"{change.key} must be at most {largest:.0f}")
        if value % 1.0 > _FRACTION_MAX:
            raise InvalidRequest(f"{change.key} must be a whole number")
