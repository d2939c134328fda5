"""Store and change a broker's quotas.

    change     check ─▶ line in the journal, durable ─▶ new table ─▶ epoch raised, `on_change` ─▶ response

Connections and handlers enforce the quotas of users and client ids with a `QuotaControl`.

Thread rule: any thread. The table is replaced as a whole. The lock `_changing` makes check and change atomic; it is
taken before the locks of the log manager.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.serve.quota import QuotaControl
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.base.quota_entities import IP, Change, Entity, check_entity, check_value, entity_text
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.quotas.table import QuotaTable
from kafkalite.errors import InvalidRequest, KafkaError, PolicyViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalite.settings.areas.quotas import QuotaRows

LOCALHOST: Final = "localhost"
CHANGES_MAX: Final = 10_000
"""Maximum number of quotas that one request may change, as in Kafka."""

logger = RepeatLogger(logging.getLogger("kafkalite.broker.quotas"), lines=EVENT_LINES)


class Alteration(NamedTuple):
    """The changes that a request makes to one entity's quotas. A value of None removes a quota."""

    entity: Entity
    values: Sequence[tuple[str, float | None]]


class Quotas:
    """The quotas of a broker."""

    def __init__(
        self,
        entries: Mapping[Entity, Mapping[str, float]],
        record: Callable[[Sequence[Change]], None],
        config: QuotaRows,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """Begin with these quotas. `record` makes changes durable, all or none, or raises KafkaError.

        `on_change` is called after each change.
        """
        self.table = QuotaTable(entries)
        self.control = QuotaControl(
            self.table.bounds,
            window_s=config.quota_window_size_seconds,
            samples=config.quota_window_num,
            mutation_window_s=config.controller_quota_window_size_seconds,
            mutation_samples=config.controller_quota_window_num,
        )
        """The native part, which connections use."""
        self._record = record
        self._on_change = on_change
        self._changing = threading.Lock()

    @property
    def client_control(self) -> QuotaControl | None:
        """The QuotaControl for connections; None while no quota of users or client ids exists.

        With None, connections look up nothing.
        """
        return self.control if self.table.bounds_clients else None

    def alter(
        self, alterations: Iterable[Alteration], *, validate_only: bool = False
    ) -> dict[Entity, KafkaError | None]:
        """Make all valid changes; return entity → error, or None for a valid one.

        PolicyViolation, without any change, if the request changes more than CHANGES_MAX quotas.
        """
        results: dict[Entity, KafkaError | None] = {}
        changes: list[Change] = []
        with self._changing:
            for alteration in checkpointed(alterations):
                entity = alteration.entity
                if entity in results:
                    results[entity] = InvalidRequest(f"the request names {entity_text(entity)} more than once")
                    continue
                try:
                    changes += self._changes(alteration)
                    results[entity] = None
                except InvalidRequest as error:
                    results[entity] = error
            if len(changes) > CHANGES_MAX:
                raise PolicyViolation(
                    f"a request can change at most {CHANGES_MAX} quotas, but this one changes {len(changes)}"
                )
            if changes and not validate_only:
                try:
                    self._change(changes)
                except KafkaError as error:
                    return {entity: result or error for entity, result in results.items()}
        return results

    def replace(self, entries: Mapping[Entity, Mapping[str, float]]) -> None:
        """Replace all quotas by those of the cluster's controllers. Nothing is made durable."""
        with self._changing:
            self.table = QuotaTable(entries)
            self.control.change(self.table.bounds)
            if self._on_change is not None:
                self._on_change()

    def _changes(self, alteration: Alteration) -> list[Change]:
        """Return the changes that an alteration makes; values that stay the same are left out.

        InvalidRequest if the alteration is invalid.
        """
        entity = alteration.entity
        wanted = dict(alteration.values)
        if len(wanted) != len(alteration.values):
            raise InvalidRequest(f"the request gives a quota of {entity_text(entity)} more than once")
        check_entity(entity)
        if entity[0][0] == IP and entity[0][1] is not None and address_of(entity[0][1]) is None:
            raise InvalidRequest(f"{entity[0][1][:64]!r} is not an IP address; host names are not resolved")
        present = self.table.entries.get(entity, {})
        changes = [Change(entity, key, value) for key, value in wanted.items()]
        for change in changes:
            check_value(change)
        return [change for change in changes if change.value != present.get(change.key)]

    def _change(self, changes: Sequence[Change]) -> None:
        self._record(changes)
        self.table = self.table.changed(changes)
        self.control.change(self.table.bounds)
        for change in changes:
            logger.info(
                "quota %s",
                "removed" if change.value is None else "set",
                extra=fields(entity=entity_text(change.entity), key=change.key, value=change.value),
            )
        if self._on_change is not None:
            self._on_change()


def address_rates(table: QuotaTable) -> tuple[dict[str, float], float | None]:
    """Return (address → connections per second, rate of each other address or None). Invalid addresses are left out."""
    named, default = table.addresses()
    rates: dict[str, float] = {}
    for name, rate in named.items():
        address = address_of(name)
        if address is None:
            logger.warning("ignored an IP quota whose name is not an IP address", extra=fields(name=name[:64]))
        else:
            rates[address] = rate
    return rates, default


def address_of(name: str) -> str | None:
    """Return an address in its canonical text form; None if the address is not valid.

    The only valid host name is `localhost`. Kafka resolves other host names, too, once; here a request must not wait
    for a resolver.
    """
    if name == LOCALHOST:
        return "127.0.0.1"
    if not name.isprintable():  # the zone of an IPv6 address accepts any characters
        return None
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return None
