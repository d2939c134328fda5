"""What one data directory knows besides records: users, ACLs, quotas, features, settings of groups and subscriptions,
producer ids. All of it is in the journal; so are a lone broker's topics, which `LogManager` records here.

In a cluster the controllers have it instead, and hand over what this broker needs (`use_credentials`, `group_configs`,
`client_metrics`). Then nothing of it is made durable here.

Thread rule: any thread. A change blocks until it is on the disk, under the journal's lock; under that one no other lock
is taken. The lock of user passwords comes before it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.base.randomness import random_bytes
from kafkalite.broker.log import disk, journal
from kafkalite.errors import ConfigError, InvalidRequest, StorageError
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.settings.group import GroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalite.base.acls import Acl
    from kafkalite.base.quota_entities import Change, Entity
    from kafkalite.broker.features import Features
    from kafkalite.broker.log.journal import Journal, MetadataState
    from kafkalite.model import ScramCredential
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)


class MetadataStore:
    """The metadata of one data directory, of which `config` gives the settings in force."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self.group_configs: dict[str, GroupConfig] = {}
        """Settings of groups that have any, by group id; replaced as a whole."""
        self.client_metrics: dict[str, ClientMetricsConfig] = {}
        """Subscriptions to clients' metrics, by name; replaced as a whole."""
        self._config = config
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self._credentials_lock = threading.Lock()  # held while a change is decided and written: above _lock
        self._cluster_credentials: dict[tuple[str, str], ScramCredential] = {}  # of a cluster's users

    # --- the journal --------------------------------------------------------------------------------------------------

    def open(self, journal_: Journal) -> None:
        """Uses this journal from now on, and closes it in the end."""
        self._journal = journal_

    def close(self) -> None:
        """Closes the journal, if one is open."""
        if self._journal is not None:
            self._journal.close()

    @property
    def state(self) -> MetadataState:
        """What the journal says. It changes in place, under the GIL. StorageError unless the directory is open."""
        return self._open_journal().state

    def load_settings(self) -> None:
        """Puts the journal's settings of groups and subscriptions into force."""
        journal_ = self._open_journal()
        self._take_groups(journal_)
        self._take_client_metrics(journal_)

    @property
    def failure(self) -> str | None:
        """Why the journal accepts no changes any more; None while it does."""
        return None if self._journal is None else self._journal.failure

    def record(self, *changes: dict[str, object]) -> None:
        """Writes down changes, all or none; on the disk when this returns. StorageError."""
        with self._lock:
            self._write(self._open_journal(), *changes)

    def size(self) -> int:
        """Bytes of the journal whose lines hold."""
        with self._lock:
            return self._open_journal().size

    def link(self, path: str) -> int:
        """Links the journal's file to `path`; bytes of it that hold. Compaction replaces the file, never changes it."""
        with self._lock:
            journal_ = self._open_journal()
            disk.link(journal_.path, path)
            return journal_.size

    def compact(self) -> None:
        """Shortens the journal where topics and settings that changed often have made it long. May block."""
        with self._lock:
            journal_ = self._open_journal()
            before = journal_.size
            if journal_.compact_running():
                logger.info("compacted the metadata journal", extra=fields(size=journal_.size, before=before))

    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise StorageError("the data directory is not open")
        return self._journal

    def _write(self, journal_: Journal, *changes: dict[str, object]) -> None:
        try:
            journal_.record(*changes)
        except OSError as error:
            raise StorageError(f"the change could not be written to the journal: {error}") from error

    # --- users --------------------------------------------------------------------------------------------------------

    @property
    def credentials(self) -> Mapping[tuple[str, str], ScramCredential]:
        """What is kept of passwords, by mechanism and user. It changes in place, under the GIL."""
        return self._cluster_credentials if self._config().in_cluster else self._open_journal().state.credentials

    def use_credentials(self, credentials: Mapping[tuple[str, str], ScramCredential]) -> None:
        """From now on these are the users: what the controllers of a cluster say. Nothing is made durable."""
        known = self._cluster_credentials
        known.update(credentials)
        for gone in known.keys() - credentials.keys():
            del known[gone]

    def alter_credentials(self, decide: Callable[[], Sequence[dict[str, object]]]) -> None:
        """Writes down, as a whole, what `decide` changes of the present credentials, which hold still meanwhile."""
        with self._credentials_lock:
            changes = decide()
            if changes:
                self.record(journal.credentials_change(changes))

    def secret(self) -> bytes:
        """Random bytes that this data directory keeps, made when they are first asked for. May block."""
        with self._lock:
            journal_ = self._open_journal()
            if not journal_.state.secret:
                self._write(journal_, {"op": "secret", "value": random_bytes(32).hex()})
            return journal_.state.secret

    def acls(self) -> list[Acl]:
        """The rules (ACLs) that the journal has."""
        with self._lock:
            return list(self._open_journal().state.acls)

    def change_acls(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        """Adds rules that are not there and removes some that are; on the disk when this returns, all or none."""
        self.record(journal.acls_change(added, removed))

    # --- settings, quotas, features, ids ------------------------------------------------------------------------------

    def alter_group(self, group_id: str, config: GroupConfig) -> None:
        """Gives a group these settings; in force, and on the disk, when this returns."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.group_change(group_id, config.overrides))
            self._take_groups(journal_)

    def _take_groups(self, journal_: Journal) -> None:
        """A group whose settings this broker's bounds do not allow any more has none, as in Kafka."""
        configs = {}
        for group_id, overrides in journal_.state.group_overrides.items():
            try:
                configs[group_id] = GroupConfig.resolve(self._config(), overrides)
            except ConfigError as error:
                repeats.warning("ignored the invalid settings of a group: %s", error, extra=fields(group=group_id))
        self.group_configs = configs

    def alter_client_metrics(self, name: str, config: ClientMetricsConfig) -> None:
        """Makes this subscription to clients' metrics, or ends it; in force, and on the disk, when this returns."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.client_metrics_change(name, config.overrides))
            self._take_client_metrics(journal_)

    def _take_client_metrics(self, journal_: Journal) -> None:
        """A subscription that this release cannot read does not count, and stays in the journal."""
        configs = {}
        for name, overrides in journal_.state.client_metrics_overrides.items():
            try:
                configs[name] = ClientMetricsConfig.resolve(overrides)
            except (ConfigError, InvalidRequest) as error:
                repeats.warning(
                    "ignored an invalid client metrics subscription: %s", error, extra=fields(subscription=name)
                )
        self.client_metrics = configs

    def quotas(self) -> dict[Entity, dict[str, float]]:
        """The quotas that the journal has: values by key, by entity."""
        with self._lock:
            return {entity: dict(values) for entity, values in self._open_journal().state.quotas.items()}

    def change_quotas(self, changes: Sequence[Change]) -> None:
        """Sets quotas, and takes some away that are there; on the disk when this returns, all or none."""
        self.record(journal.quotas_change(changes))

    @property
    def features(self) -> Features:
        """Those in force."""
        return self._open_journal().state.features

    def change_features(self, levels: Mapping[str, int]) -> None:
        """Switches features to these levels; on the disk when this returns, all or none."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.features_change(journal_.state.features.changed_to(levels)))

    def allocate_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids never given out before, which is on the disk when this returns."""
        with self._lock:
            journal_ = self._open_journal()
            first = journal_.state.next_producer_id
            self._write(journal_, {"op": "producer_ids", "next": first + count})
            return first

    def producer_id_seen(self, producer_id: int) -> None:
        """A log has another broker's producer id: ids given out from now on are above it, except in a cluster."""
        if self._config().in_cluster:
            return
        with self._lock:
            journal_ = self._open_journal()
            if producer_id >= journal_.state.next_producer_id:
                self._write(journal_, {"op": "producer_ids", "next": producer_id + 1})

    def position(self) -> tuple[int, int]:
        """(changes written to the journal, leader epoch of who writes it): what Kafka tells of its metadata log."""
        with self._lock:
            journal_ = self._open_journal()
            return journal_.change_count, journal_.state.unclean_count + 1
