"""All quotas at one moment: which of them counts for a client, and which are meant by a filter. Nothing changes here.

Of a client's quotas the first that is there counts, for each key by itself, in Kafka's order:

    user and client id · user, any client id · user · any user and client id · any user, any client id · any user ·
    client id · any client id

A quota of "any" is each one's own: a default of 1 MB/s lets each user have 1 MB/s. A client without an id has what any
client id has, so that saying nothing is no way round.
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
"""How a component of a filter is meant: this name, the default, whichever (DescribeClientQuotas' match types)."""


class Bound(NamedTuple):
    """What bounds a client: the value, and whose it is: all clients of the same owner have it together."""

    value: float
    owner: tuple[str, str | None, str | None]
    """(key, user or None, client id or None)."""


@dataclass(frozen=True, slots=True)
class Component:
    """One type of entity in a filter; ANY and DEFAULT have no name."""

    kind: str
    match: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaTable:
    """An immutable image of all quotas."""

    entries: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)

    def changed(self, changes: Iterable[Change]) -> QuotaTable:
        """The image after changes. What is taken away and is not there is no change."""
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
        """Whether there is one for a user or client id."""
        return any(entity[0][0] != IP for entity in self.entries)

    def bound(self, key: str, user: str, client_id: str) -> Bound | None:
        """What counts for a client; None: nothing does."""
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
        """What counts for a client, by the keys of CLIENT_KEYS."""
        return tuple(self.bound(key, user, client_id) for key in CLIENT_KEYS)

    def addresses(self) -> tuple[dict[str, float], float | None]:
        """Connections a second: by the name that an address was given by, and of all others (None: unbounded)."""
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
        """Those that a filter means: entities with all its components, and with no others if `strict`."""
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
"""The names of user and client id under which a quota is looked for, in order; None: not by that type."""


def _checked(components: Iterable[Component]) -> dict[str, Component]:
    """Components by type; InvalidRequest and UnsupportedVersion where they make no filter."""
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
