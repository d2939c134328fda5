"""Store the metadata of one data directory: users, ACLs, quotas, features, dynamic settings, producer ids.

A standalone broker writes all of it to the journal. In a cluster, the controllers own the metadata. The store then
keeps users, group settings and client metrics subscriptions in memory.

Thread rule: any thread. A change holds the journal's lock, a leaf lock, until it is durable. The lock of user
credentials is taken before the journal's.
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
    """The metadata of one data directory. `config` returns the current broker settings."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self.group_configs: dict[str, GroupConfig] = {}
        """Group id → the settings of this group, for groups that have any; replaced as a whole."""
        self.client_metrics: dict[str, ClientMetricsConfig] = {}
        """Name → client metrics subscription (KIP-714); replaced as a whole."""
        self._config = config
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self._credentials_lock = threading.Lock()  # held while a change is computed and written; taken before _lock
        self._cluster_credentials: dict[tuple[str, str], ScramCredential] = {}  # in a cluster, from the controllers

    # --- the journal --------------------------------------------------------------------------------------------------

    def open(self, journal_: Journal) -> None:
        """Use this journal from now on; close() closes the journal."""
        self._journal = journal_

    def close(self) -> None:
        """Close the journal, if one is open."""
        if self._journal is not None:
            self._journal.close()

    @property
    def state(self) -> MetadataState:
        """The state after all lines of the journal, changed in place under the GIL. StorageError unless the directory
        is open.
        """
        return self._open_journal().state

    def load_settings(self) -> None:
        """Apply the journal's group settings and client metrics subscriptions."""
        journal_ = self._open_journal()
        self._take_groups(journal_)
        self._take_client_metrics(journal_)

    @property
    def failure(self) -> str | None:
        """The reason why the journal accepts no more changes; None if it accepts them."""
        return None if self._journal is None else self._journal.failure

    def record(self, *changes: dict[str, object]) -> None:
        """Write all of the changes or none; the changes are durable on return. StorageError. The manager and the topic
        sources write a standalone broker's topics with this method.
        """
        with self._lock:
            self._write(self._open_journal(), *changes)

    def size(self) -> int:
        """Return the size in bytes of the journal's valid lines."""
        with self._lock:
            return self._open_journal().size

    def link(self, path: str) -> int:
        """Make a hard link at `path` to the journal's file; return the size in bytes of the journal's valid lines.

        Compaction of the journal replaces the file and never changes it, so the link keeps these lines.
        """
        with self._lock:
            journal_ = self._open_journal()
            disk.link(journal_.path, path)
            return journal_.size

    def compact(self) -> None:
        """Shorten the journal if changes to topics and settings have made it long. May block."""
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
        """SCRAM credentials by mechanism and user, changed in place under the GIL."""
        return self._cluster_credentials if self._config().in_cluster else self._open_journal().state.credentials

    def use_credentials(self, credentials: Mapping[tuple[str, str], ScramCredential]) -> None:
        """Replace the users by the controllers' users. Nothing is made durable."""
        known = self._cluster_credentials
        known.update(credentials)
        for gone in known.keys() - credentials.keys():
            del known[gone]

    def alter_credentials(self, decide: Callable[[], Sequence[dict[str, object]]]) -> None:
        """Write all changes that `decide` returns, or none. Until then, no other thread changes the credentials."""
        with self._credentials_lock:
            changes = decide()
            if changes:
                self.record(journal.credentials_change(changes))

    def secret(self) -> bytes:
        """Return random bytes that belong to this data directory, generated at the first call. May block."""
        with self._lock:
            journal_ = self._open_journal()
            if not journal_.state.secret:
                self._write(journal_, {"op": "secret", "value": random_bytes(32).hex()})
            return journal_.state.secret

    def acls(self) -> list[Acl]:
        """Return the ACLs in the journal."""
        with self._lock:
            return list(self._open_journal().state.acls)

    def change_acls(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        """Add new ACLs and remove existing ACLs, all or none; durable on return."""
        self.record(journal.acls_change(added, removed))

    # --- settings, quotas, features, ids ------------------------------------------------------------------------------

    def alter_group(self, group_id: str, config: GroupConfig) -> None:
        """Set a group's settings; durable and in force on return."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.group_change(group_id, config.overrides))
            self._take_groups(journal_)

    def _take_groups(self, journal_: Journal) -> None:
        """Apply the groups' settings. As in Kafka, all settings of a group are ignored if one exceeds this broker's
        limits.
        """
        configs = {}
        for group_id, overrides in journal_.state.group_overrides.items():
            try:
                configs[group_id] = GroupConfig.resolve(self._config(), overrides)
            except ConfigError as error:
                repeats.warning("ignored the invalid settings of a group: %s", error, extra=fields(group=group_id))
        self.group_configs = configs

    def alter_client_metrics(self, name: str, config: ClientMetricsConfig) -> None:
        """Create, change or delete a client metrics subscription; durable and in force on return."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.client_metrics_change(name, config.overrides))
            self._take_client_metrics(journal_)

    def _take_client_metrics(self, journal_: Journal) -> None:
        """Apply the client metrics subscriptions. A subscription that this release cannot read is ignored and stays in
        the journal.
        """
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
        """Return the quotas in the journal: entity → quota key → value."""
        with self._lock:
            return {entity: dict(values) for entity, values in self._open_journal().state.quotas.items()}

    def change_quotas(self, changes: Sequence[Change]) -> None:
        """Set quotas and remove existing quotas, all or none; durable on return."""
        self.record(journal.quotas_change(changes))

    @property
    def features(self) -> Features:
        """The feature levels in force."""
        return self._open_journal().state.features

    def change_features(self, levels: Mapping[str, int]) -> None:
        """Set features to these levels, all or none; durable on return."""
        with self._lock:
            journal_ = self._open_journal()
            self._write(journal_, journal.features_change(journal_.state.features.changed_to(levels)))

    def allocate_producer_ids(self, count: int) -> int:
        """Return the first of `count` producer ids that were never allocated before; durable on return."""
        with self._lock:
            journal_ = self._open_journal()
            first = journal_.state.next_producer_id
            self._write(journal_, {"op": "producer_ids", "next": first + count})
            return first

    def producer_id_seen(self, producer_id: int) -> None:
        """Note that a log has records with this producer id from another broker, so that only higher ids are allocated
        from now on.

        No effect in a cluster.
        """
        if self._config().in_cluster:
            return
        with self._lock:
            journal_ = self._open_journal()
            if producer_id >= journal_.state.next_producer_id:
                self._write(journal_, {"op": "producer_ids", "next": producer_id + 1})

    def position(self) -> tuple[int, int]:
        """Return (number of changes written to the journal, leader epoch of its writer).

        Clients get these numbers as the end offset and epoch of Kafka's metadata log.
        """
        with self._lock:
            journal_ = self._open_journal()
            return journal_.change_count, journal_.state.unclean_count + 1
