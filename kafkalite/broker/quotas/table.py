"""Find the quota that applies to a client, or the quotas that match a filter, in an immutable table of all quotas.

For each quota key, such as producer_byte_rate, the first of these quotas that exists applies to a client, as in Kafka:

    1  user and client id            5  any user and any client id
    2  user and any client id        6  any user
    3  user                          7  client id
    4  any user and client id        8  any client id

A default quota ("any") applies to each user or client id separately.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.dataclass import dataclass
from kafkalite.base.quota_entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    IP,
    TYPES,
    USER,
    Entity,
    entity_of,
)
from kafkalite.errors import ErrorCode, InvalidRequest, error_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.base.quota_entities import Change

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Match types of a DescribeClientQuotas filter component: the given name, the default, any name."""


class Bound(NamedTuple):
    """A quota that applies to a client: its value and its owner.

    The owner is a user, a client id or both. All clients of the owner share the quota.
    """

    value: float
    owner: tuple[str, str | None, str | None]
    """(Key, user or None, client id or None)."""


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a filter: an entity type and how its name must match. With ANY and DEFAULT, it has no name."""

    kind: str
    match: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaTable:
    """An immutable table of all quotas."""

    entries: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)

    def changed(self, changes: Iterable[Change]) -> QuotaTable:
        """Return a copy of the table with these changes. To remove a quota that does not exist has no effect."""
        entries = dict(self.entries)
        for entity, key, value in changes:
            values = dict(entries.get(entity, {}))
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
            if values:
                entries[entity] = values
            else:
                entries.pop(entity, None)
        return QuotaTable(entries)

    @property
    def bounds_clients(self) -> bool:
        """Whether any quota of a user or client id exists."""
        return any(entity[0][0] != IP for entity in self.entries)

    def bound(self, key: str, user: str, client_id: str) -> Bound | None:
        """Return the quota with this key that applies to a client, or None.

        A client without a client id has the default quotas of client ids, so leaving out the id evades no quota.
        """
        for user_name, client_name in _PRECEDENCE:
            parts = []
            if user_name is not None:
                parts.append((USER, user_name(user)))
            if client_name is not None:
                parts.append((CLIENT_ID, client_name(client_id)))
            value = self.entries.get(entity_of(parts), {}).get(key)
            if value is not None:
                return Bound(value, (key, user if user_name else None, client_id if client_name else None))
        return None

    def bounds(self, user: str, client_id: str) -> tuple[Bound | None, ...]:
        """Return the quotas that apply to a client, in the order of CLIENT_KEYS."""
        return tuple(self.bound(key, user, client_id) for key in CLIENT_KEYS)

    def addresses(self) -> tuple[dict[str, float], float | None]:
        """Return (address as text → connections per second, rate of each other address or None for unlimited)."""
        named: dict[str, float] = {}
        default = None
        for entity, values in self.entries.items():
            kind, name = entity[0]
            if kind != IP or CONNECTION_CREATION_RATE not in values:
                continue
            if name is None:
                default = values[CONNECTION_CREATION_RATE]
            else:
                named[name] = values[CONNECTION_CREATION_RATE]
        return named, default

    def find(self, components: Iterable[Component], *, strict: bool) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Yield the entities that match all components of a filter, with their quotas.

        With `strict`, entities that have other types, too, are left out.
        """
        wanted = _checked(components)
        for entity, values in self.entries.items():
            names = dict(entity)
            if strict and names.keys() != wanted.keys():
                continue
            if all(
                kind in names and (component.match == ANY or names[kind] == component.name)
                for kind, component in wanted.items()
            ):
                yield entity, values


def _same(name: str) -> str | None:
    return name or None


def _default(_name: str) -> str | None:
    return None


_PRECEDENCE: Final = (
    (_same, _same),
    (_same, _default),
    (_same, None),
    (_default, _same),
    (_default, _default),
    (_default, None),
    (None, _same),
    (None, _default),
)
"""The names of user and client id to look up, in order; None: entities without this type."""


def _checked(components: Iterable[Component]) -> dict[str, Component]:
    """Check the components of a filter; return them by type. InvalidRequest or UnsupportedVersion for an invalid
    filter.
    """
    wanted: dict[str, Component] = {}
    for component in components:
        if not component.kind:
            raise InvalidRequest("a filter component has no entity type")
        if component.kind in wanted:
            raise InvalidRequest(f"the filter names entity type {component.kind[:64]!r} more than once")
        if component.kind not in TYPES:
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"unknown quota entity type {component.kind[:64]!r}")
        if component.match not in {EXACT, DEFAULT, ANY}:
            raise InvalidRequest(f"unknown match type {component.match}")
        if (component.match == EXACT) != (component.name is not None):
            raise InvalidRequest(
                f"the filter component for {component.kind} must have a name if its match type is exact, and no "
                "name otherwise"
            )
        wanted[component.kind] = component
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("IP quotas cannot be combined with users or client ids")
    return wanted
