"""Whom a quota is about, what it bounds, and what can be one: Kafka's ClientQuotaControlManager and QuotaConfig.

An entity is a user, a client id, both together, or an address; the name None stands for everybody who has no quota of
his own there (Kafka's default). Each key bounds one thing, and has a value a second:

    producer_byte_rate, consumer_byte_rate      bytes of Produce requests, of Fetch answers; whole numbers
    request_percentage                          time of threads: 100 is one thread
    controller_mutation_rate                    partitions that are created and deleted
    connection_creation_rate                    connections; of addresses alone, a whole number
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
"""What users and client ids may have → the largest whole number, None where fractions may be."""
ADDRESS_KEYS: Final[dict[str, float | None]] = {CONNECTION_CREATION_RATE: _INT_MAX}
"""The same of addresses."""
_FRACTION_MAX: Final = 1e-6
"""What is left of a whole number that went through arithmetic, as in Kafka."""

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) in the order of types, each once."""


class Change(NamedTuple):
    """A quota that is set, or taken away (value None)."""

    entity: Entity
    key: str
    value: float | None

    def fields(self) -> dict[str, Any]:
        """As JSON has it, which `from_fields` reads."""
        return {"entity": dict(self.entity), "key": self.key, "value": self.value}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Change:
        """What `fields` made; ValueError for what cannot be a quota, KeyError and TypeError for anything else."""
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
    """The entity of these types and names; of a type that comes twice the last one counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def entity_text(entity: Entity) -> str:
    """An entity for people."""
    return ", ".join(f"{kind} {'(default)' if name is None else repr(name[:64])}" for kind, name in entity) or "(none)"


def check_entity(entity: Entity) -> None:
    """Raises InvalidRequest for what can have no quotas. Whether a name stands for an address is not looked at."""
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
    """Raises InvalidRequest for a key that such entities do not have, and for a value that it cannot have."""
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
