"""Migrate a standalone broker into a cluster. The data stays in its data directory.

    look        open the directory as the broker did; find what it contains, and what cannot be migrated
    join        register with the id that the broker will have; clients cannot connect yet
    hand over   send ACLs, quotas and settings to the controllers; create the topics there, with their only replica here
    raise       raise leader epochs above those in the logs, and producer ids above those allocated here
    leave       end the registration, as a broker that stops does; then adjust the committed offsets of groups
    become      give the directory the topics' new ids and the cluster's identity (kafkalite.broker.log.handover)

Records are not moved or rewritten. Offsets, epochs, and the state of producers and transactions stay the same. After an
interruption, run the migration again: each step can be repeated.

Blocks; belongs to one thread. Raises StartupError if the migration is not possible.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time
from kafkalite.base.acls import Acl
from kafkalite.base.dataclass import dataclass
from kafkalite.base.executors import THREADS
from kafkalite.broker.cluster.bootstrap_users import NUMBERS
from kafkalite.broker.cluster.member import Member
from kafkalite.broker.cluster.membership_setup import MECHANISMS, cluster_id_of, node_of, times_of, ways_of
from kafkalite.broker.coordinator.migrated_state import fit_groups, look_at_groups, look_at_transactions
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalite.broker.log import checkpoints, files, handover
from kafkalite.broker.log.directory import NO_BROKER_EPOCH
from kafkalite.broker.log.handover import PLANNED, Handover
from kafkalite.broker.log.journal import replay
from kafkalite.broker.log.manager import LogManager
from kafkalite.errors import ErrorCode, StartupError, error_for
from kafkalite.model import uuid_text
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_settings_table import REMOVED
from kafkalite.wire.acl_messages import creation_of, filter_fields
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkalite.wire.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalite.base.clock import Clock
    from kafkalite.broker.cluster.image import Entity, Image
    from kafkalite.broker.log.journal import MetadataState, TopicState
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.model import ScramCredential

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Resource types in requests about settings."""
SET, DELETE = 0, 1
"""Operations in IncrementalAlterConfigs."""
OWN_TOPIC_SETTINGS: Final = frozenset({"message.format", "record.validation"})
"""Topic settings that Kafka's controllers do not know."""
LEFT_OUT: Final = OWN_TOPIC_SETTINGS | REMOVED | {"remote.storage.enable"}
"""Topic settings that the controllers refuse; the ones among them that Kafka defines have no effect in kafkalite."""
PARTITIONS_AT_ONCE: Final = 2000
"""The most partitions in one CreateTopics; a controller refuses requests that would write 10,000 records."""
RULES_AT_ONCE: Final = 500
ANSWER_S_MAX: Final = 90.0
IMAGE_S_MAX: Final = 60.0
SETTLE_S: Final = 5.0
"""Time in seconds to wait for metadata that is already decided; without this metadata a request might be sent twice."""
LOOK_S: Final = 0.02
TIMEOUT_MS: Final = 30_000
EPOCH_RECORDS_MAX: Final = 2_000_000
"""The most metadata records that raising the leader epochs may write."""
PRODUCER_BLOCK: Final = 1000
"""Ids that the controllers allocate at a time (Kafka's ProducerIdsBlock)."""
PRODUCER_BLOCKS_MAX: Final = 20_000
NAMED_MAX: Final = 5
_TWICE: Final = 2


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a migration: numbers of the migrated data, and descriptions of the data that was left out."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    """Number of offsets: compacted records and transaction markers count too. Without the coordinators' topics."""
    size: int = 0
    """Size in bytes of all topics."""
    groups: int = 0
    positions: int = 0
    transactional_ids: int = 0
    users: int = 0
    """Number of SCRAM credentials that the controllers got before their first start; one per user and mechanism."""
    rules: int = 0
    quotas: int = 0
    settings: int = 0
    """Number of settings of topics, groups, brokers and client metrics subscriptions."""
    not_taken: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """The contents of the standalone broker's directory."""

    state: MetadataState
    report: Report
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    """The leader epoch of each partition."""
    producer_ids: set[int] = field(default_factory=set)
    """Producer ids in logs and transactions."""


def migrate(config: BrokerConfig, clock: Clock, told: Callable[[str], object], *, dry_run: bool = False) -> Report:
    """Migrate the broker's data directory into the cluster that `config` names.

    `told` is called with the description of each step. With `dry_run` the directory is only checked. Raises
    StartupError or OSError.
    """
    if not config.in_cluster:
        raise StartupError("process.roles must be broker: give the settings that the broker will have in the cluster")
    root = str(config.data_directory)
    stored = _stored_identity(root)
    begun = handover.read(root)
    if begun is None or begun.phase == PLANNED:
        alone = _alone(config, _stored_node_id(root, stored))
        begun = _hand_over(config, alone, begun, clock, told, dry_run=dry_run)
    elif begun.node_id != config.node_id:
        raise StartupError(
            f"node.id: this migration was started with node.id={begun.node_id}; finish it with this node.id"
        )
    report = Report(**begun.report)
    if not dry_run:
        told("converting the data directory for the cluster")
        handover.finish(root, begun)
    return report


def _stored_identity(root: str) -> dict[str, str]:
    values = checkpoints.read_properties(f"{root}/{files.META_PROPERTIES_NAME}")
    if values is None or "kafkalite.format" not in values:
        raise StartupError(f"log.dirs: {root} is not the data directory of a kafkalite broker")
    if "kafkalite.cluster" in values and handover.read(root) is None:
        raise StartupError(f"{root} already belongs to a broker in the cluster {values.get('cluster.id')}")
    return values


def _stored_node_id(root: str, stored: Mapping[str, str]) -> int:
    text = stored.get("node.id", stored.get("broker.id", "0"))
    try:
        return int(text)
    except ValueError:
        path = f"{root}/{files.META_PROPERTIES_NAME}"
        raise StartupError(f"{path} is damaged: node.id={text[:64]}; restore it from a copy") from None


def _alone(config: BrokerConfig, node_id: int) -> BrokerConfig:
    """Return the settings for opening the logs as the standalone broker did."""
    texts: dict[str, object] = {
        key: text
        for key, text in config.static_texts.items()
        if key != "process.roles" and not key.startswith("controller.")
    }
    return BrokerConfig.load(None, {**texts, "node.id": node_id, "log.dirs": str(config.data_directory)})


def _hand_over(
    config: BrokerConfig,
    alone: BrokerConfig,
    begun: Handover | None,
    clock: Clock,
    told: Callable[[str], object],
    *,
    dry_run: bool,
) -> Handover:
    """Run all steps except the last one. The directory is closed afterwards."""
    told("checking the data directory")
    faults: list[BaseException] = []
    logs = LogManager(alone, clock, on_fatal=faults.append)
    logs.open()
    try:
        found = _look(logs)
        if dry_run:
            found.report.not_taken += _missing_users(found.state, {})
            done = Handover(phase=PLANNED, cluster_id="", node_id=config.node_id, topics=[], producer_ids_before=0)
        else:
            done = _Migration(config, logs, found, begun, clock, told).run()
            told("adjusting the committed offsets of groups")
            fit_groups(_partitions(logs, OFFSETS_TOPIC), clock.time_ms())
    except BaseException:
        logs.close()
        raise
    if not logs.close() or faults:
        raise StartupError(f"{logs.directory} could not be closed cleanly; nothing was changed in it, see the log")
    done.report = asdict(found.report)
    if not dry_run:
        handover.begin_moving(logs.directory, done)
    return done


# --- look -------------------------------------------------------------------------------------------------------------


def _look(logs: LogManager) -> _Found:
    """Return the contents of the directory. Raises StartupError if they cannot be migrated."""
    data = files.read_bytes(f"{logs.directory}/{files.JOURNAL_NAME}")
    state, _, _ = replay(f"{logs.directory}/{files.JOURNAL_NAME}", data or b"")
    classic = sorted(logs.classic_topics())
    if classic:
        raise StartupError(
            f"topics in Kafka 0.7's format cannot move into a cluster: {_named(classic)}; copy them into other "
            "topics (kafkalite mirror) or delete them"
        )
    offline = sorted(log.name for log in logs.offline_logs)
    if offline:
        raise StartupError(f"unreadable partitions: {_named(offline)}; run kafkalite log check for details")
    report = Report(topics=len(state.topics), rules=len(state.acls), quotas=sum(map(len, state.quotas.values())))
    found = _Found(state, report)
    opened = []
    for log in logs.logs():
        report.partitions += 1
        report.size += log.size_bytes
        if log.topic not in {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}:
            report.records += log.log_end_offset - log.log_start_offset
        found.epochs[log.topic, log.partition] = log.leader_epoch
        producers = log.ensure_producers()
        with log.core.locked():
            opened += [log.name] if producers.open_transactions() else []
        found.producer_ids.update(row.producer_id for row in log.producer_rows())
    transactions = look_at_transactions(_partitions(logs, TRANSACTIONS_TOPIC))
    found.producer_ids |= transactions.producer_ids
    report.transactional_ids = transactions.ids
    if opened or transactions.under_way:
        which = f"in {_named(sorted(opened))}" if opened else f"of {_named(transactions.under_way)}"
        raise StartupError(
            f"transactions are open {which}; start the broker, let them finish (kafkalite transactions), and stop it"
        )
    groups = look_at_groups(_partitions(logs, OFFSETS_TOPIC))
    report.groups, report.positions = len(groups.names), groups.positions
    report.settings = sum(map(len, _settings_of(state, 0).values()))
    report.settings += sum(len(_taken(topic)) for topic in state.topics.values())
    report.not_taken = list(_not_taken(state))
    return found


def _partitions(logs: LogManager, name: str) -> Sequence[PartitionLog]:
    topic = logs.topics.get(name)
    return () if topic is None else topic.partitions


def _taken(topic: TopicState) -> dict[str, str]:
    return {key: text for key, text in topic.overrides.items() if key not in LEFT_OUT}


def _not_taken(state: MetadataState) -> Iterator[str]:
    for topic in state.topics.values():
        for key in sorted(topic.overrides.keys() & LEFT_OUT):
            yield (
                f"{key}={topic.overrides[key]} of topic {topic.name}: Apache Kafka's controllers do not accept this "
                "value"
            )


def _missing_users(state: MetadataState, there: Mapping[tuple[int, str], ScramCredential]) -> Iterator[str]:
    users: dict[str, list[str]] = {}
    for (mechanism, user), kept in sorted(state.credentials.items()):
        if there.get((NUMBERS[mechanism], user)) != kept:
            users.setdefault(user, []).append(mechanism)
    for user, mechanisms in users.items():
        yield (
            f"user {user} ({', '.join(mechanisms)}): controllers read passwords from files only before their first "
            "start (kafkalite users copy --controller-dir); set a new password with kafkalite users add"
        )


def _settings_of(state: MetadataState, node_id: int) -> dict[tuple[int, str], dict[str, str]]:
    """Return resource → settings. Topics are left out, since they are created with their settings."""
    found = {
        (BROKER, ""): state.cluster_overrides,
        (BROKER, str(node_id)): state.broker_overrides,
        **{(GROUP, name): values for name, values in state.group_overrides.items()},
        **{(CLIENT_METRICS, name): values for name, values in state.client_metrics_overrides.items()},
    }
    return {resource: values for resource, values in found.items() if values}


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


# --- with the controllers ---------------------------------------------------------------------------------------------


class _Migration:
    """The steps of a migration that need the cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        found: _Found,
        begun: Handover | None,
        clock: Clock,
        told: Callable[[str], object],
    ) -> None:
        self._config = config
        self._logs = logs
        self._found = found
        self._begun = begun
        self._told = told
        ways = ways_of(config)
        self._told("joining the cluster")
        self._cluster_id = cluster_id_of(ways, config, clock, THREADS.event())
        if begun is not None and (begun.cluster_id, begun.node_id) != (self._cluster_id, config.node_id):
            raise StartupError(
                f"a migration into the cluster {begun.cluster_id} as broker {begun.node_id} is unfinished; finish "
                f"it, or remove {logs.directory}/{files.MIGRATION_NAME} before you start another one"
            )
        self._fault: list[BaseException] = []
        endpoints = {
            each.name: (config.advertised_endpoint(each, each.port), each.protocol) for each in config.bound_listeners
        }
        previous = NO_BROKER_EPOCH if begun is None else begun.broker_epoch
        node = node_of(config, self._cluster_id, logs.directory, endpoints, previous)
        self._node_id = config.node_id
        self._member = Member(node, ways.controllers, times_of(config), clock, serves=True, on_fatal=self._fault.append)

    def run(self) -> Handover:
        """Run all steps that change the cluster, from `join` to `leave`."""
        member = self._member
        member.start()
        try:
            member.wait_caught_up()
            done = self._begin()
            self._take_back()
            self._carry_rules()
            self._carry_quotas()
            self._carry_settings()
            member.enter()
            self._make_topics()
            self._raise_epochs()
            self._raise_producer_ids(done)
        except BaseException:
            member.stop(controlled=member.epoch >= 0 and not self._fault)
            raise
        self._told("leaving the cluster until the broker is started")
        member.stop()
        done.broker_epoch = member.epoch
        done.ids = {name: uuid_text(member.image.topic_ids[name]) for name in sorted(self._found.state.topics)}
        return done

    def _begin(self) -> Handover:
        """Check that the cluster can accept the directory's contents, and record that the migration has begun."""
        image, state = self._member.image, self._found.state
        begun = self._begun or Handover(
            phase=PLANNED,
            cluster_id=self._cluster_id,
            node_id=self._node_id,
            topics=[],
            producer_ids_before=image.next_producer_id,
            producer_ids_clear=image.next_producer_id,
        )
        ours = set(begun.topics)
        taken = sorted(name for name in state.topics if name in image.topic_ids and name not in ours)
        if taken:
            raise StartupError(
                f"the cluster already has topics with these names: {_named(taken)}; their records cannot be merged "
                "with those of this broker: delete the topics in the cluster, or copy with kafkalite mirror"
            )
        others = sorted(
            topic.name
            for topic in image.topics.values()
            if topic.name not in ours and any(self._node_id in each.replicas for each in topic.partitions.values())
        )
        if others:
            raise StartupError(
                f"node.id: broker {self._node_id} of the cluster already has replicas of {_named(others)}; choose "
                "another node.id"
            )
        before = begun.producer_ids_before
        if any(producer_id < before for producer_id in self._found.producer_ids):
            raise StartupError(
                f"the cluster has already allocated the producer ids below {before}, and producers of this broker use "
                "some of them; migrate while only the controllers run, or copy with kafkalite mirror"
            )
        lost_answer = image.producer_ids_node == self._node_id  # a previous run was killed before it recorded the block
        if image.next_producer_id - begun.producer_ids_clear > lost_answer * PRODUCER_BLOCK:
            self._check_ids_of_others(begun.producer_ids_clear, image.next_producer_id)
        self._check_cost(image)
        self._compare_users(image)
        done = replace(
            begun,
            topics=sorted(ours | state.topics.keys()),
            producer_ids_clear=image.next_producer_id,
            broker_epoch=self._member.epoch,
            rules=begun.rules + [acl.texts() for acl in self._missing_rules()],
            quotas=_joined(begun.quotas, self._new_quotas(begun)),
            settings=_joined(begun.settings, self._new_settings(begun)),
        )
        handover.write(self._logs.directory, done)
        return done

    def _missing_rules(self) -> list[Acl]:
        there = {tuple(each) for each in self._member.image.acls.values()}
        return [acl for acl in self._found.state.acls if tuple(acl) not in there]

    def _new_quotas(self, begun: Handover) -> list[list[Any]]:
        """Return the (entity, key) of each quota that the cluster lacks.

        Raises StartupError if the cluster has another value for a quota.
        """
        there, found, others = self._member.image.quotas, [], []
        for entity, values in self._found.state.quotas.items():
            for key, value in values.items():
                row = [[list(part) for part in entity], key]
                present = there.get(entity, {}).get(key)
                if present is None:
                    found.append(row)
                elif present != value and row not in begun.quotas:
                    who = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)
                    others.append(f"{key}={present:g} of {who}")
        _refuse_others("quotas", others)
        return found

    def _new_settings(self, begun: Handover) -> list[list[Any]]:
        """Return the (resource, key) of each setting that the cluster lacks.

        Raises StartupError if the cluster has another value for a setting.
        """
        found, others = [], []
        for (kind, name), values in _settings_of(self._found.state, self._node_id).items():
            there = self._member.image.configs.get((kind, name), {})
            for key, text in values.items():
                row = [kind, name, key]
                if key not in there:
                    found.append(row)
                elif there[key] != text and row not in begun.settings:
                    others.append(f"{key}={there[key]} of {_resource(kind, name)}")
        _refuse_others("settings", others)
        return found

    def _check_ids_of_others(self, first: int, end: int) -> None:
        """Raise StartupError if a producer in the logs has an id in [first, end), since another broker may have
        allocated the id."""
        if any(first <= producer_id < end for producer_id in self._found.producer_ids):
            raise StartupError(
                f"the cluster has allocated the producer ids {first} to {end - 1} in the meantime, and producers of "
                "this broker use some of them; copy with kafkalite mirror"
            )

    def _compare_users(self, image: Image) -> None:
        state, report = self._found.state, self._found.report
        report.not_taken += _missing_users(state, image.credentials)
        there = {(MECHANISMS[number], user): kept for (number, user), kept in image.credentials.items()}
        report.users = sum(there.get(key) == kept for key, kept in state.credentials.items())

    def _check_cost(self, image: Image) -> None:
        highest = max(self._found.epochs.values(), default=0)
        if highest * len(self._found.epochs) > EPOCH_RECORDS_MAX:
            raise StartupError(
                f"leader epochs of this broker reach {highest} because of unclean shutdowns, and raising the cluster's "
                f"epochs to {highest} takes {highest * len(self._found.epochs)} metadata records; copy the topics with "
                "kafkalite mirror instead"
            )
        blocks = (self._found.state.next_producer_id - image.next_producer_id) // PRODUCER_BLOCK
        if blocks > PRODUCER_BLOCKS_MAX:
            raise StartupError(
                f"producer ids of this broker reach {self._found.state.next_producer_id}, and controllers allocate "
                "only 1000 at a time; copy the topics with kafkalite mirror instead"
            )

    # --- what an earlier attempt copied and was deleted here since ----------------------------------------------------

    def _take_back(self) -> None:
        """Remove from the cluster what an earlier attempt created and the standalone broker has deleted since."""
        if self._begun is not None:
            self._take_back_rules(self._begun.rules)
            self._take_back_quotas(self._begun.quotas)
            self._take_back_settings(self._begun.settings)
            self._take_back_topics(self._begun.topics)

    def _take_back_rules(self, carried: list[list[str]]) -> None:
        there = {tuple(each) for each in self._member.image.acls.values()}
        rules = [acl for acl in map(Acl.from_texts, carried) if acl not in self._found.state.acls]
        filters = [DeleteAclsFilter(**filter_fields(acl)) for acl in rules if tuple(acl) in there]
        for rows in _portions(filters, RULES_AT_ONCE):
            self._told("removing ACLs that a previous attempt created")
            answer = self._ask(api.DELETE_ACLS, DeleteAclsRequest(filters=rows))
            for result in answer.filter_results:
                _check(result.error_code, "to remove an ACL", result.error_message)

    def _take_back_quotas(self, carried: list[list[Any]]) -> None:
        there, gone = self._member.image.quotas, []
        for parts, key in carried:
            entity = tuple((kind, name) for kind, name in parts)
            if key in there.get(entity, {}) and key not in self._found.state.quotas.get(entity, {}):
                gone.append(_quota_entry(entity, [OpData(key=key, value=0.0, remove=True)]))
        self._alter_quotas(gone, "removing quotas that a previous attempt created")

    def _take_back_settings(self, carried: list[list[Any]]) -> None:
        here, there = _settings_of(self._found.state, self._node_id), self._member.image.configs
        for kind, name, key in carried:
            resource = (kind, name)
            if key in there.get(resource, {}) and key not in here.get(resource, {}):
                self._told("removing settings that a previous attempt created")
                self._alter_settings(kind, name, [AlterableConfig(name=key, config_operation=DELETE, value=None)])

    def _take_back_topics(self, carried: list[str]) -> None:
        """Delete topics that an earlier attempt created, if the standalone broker has deleted or extended them since.

        The cluster's topics have no records, since clients could not write to them.
        """
        image, found = self._member.image, self._found.state.topics
        gone = {
            name: image.topic_ids[name]
            for name in carried
            if (made := image.topic(name)) is not None
            and all(each.replicas == (self._node_id,) for each in made.partitions.values())
            and (name not in found or not self._has(found[name]))
        }
        if not gone:
            return
        self._told(f"removing {len(gone)} topics that a previous attempt created")
        topics = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in gone.values()]
        answer = self._ask(api.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
        for row in answer.responses:
            _check(row.error_code, f"to delete topic {row.name}", row.error_message)
        self._wait(lambda: not gone.keys() & self._member.image.topic_ids.keys(), "the deletion of topics")

    # --- the contents of the journal ----------------------------------------------------------------------------------

    def _carry_rules(self) -> None:
        missing = [creation_of(acl) for acl in self._missing_rules()]
        for rows in _portions(missing, RULES_AT_ONCE):
            self._told("copying ACLs")
            answer = self._ask(api.CREATE_ACLS, CreateAclsRequest(creations=rows))
            for result in answer.results:
                if result.error_code == ErrorCode.SECURITY_DISABLED:
                    raise StartupError(
                        f"this broker has {len(self._found.state.acls)} ACLs, but the controllers have no "
                        "authorizer; set authorizer.class.name there, or remove the ACLs here"
                    )
                _check(result.error_code, "an ACL", result.error_message)

    def _carry_quotas(self) -> None:
        entries = [
            _quota_entry(entity, [OpData(key=key, value=value, remove=False) for key, value in values.items()])
            for entity, values in self._found.state.quotas.items()
        ]
        self._alter_quotas(entries, "copying quotas")

    def _alter_quotas(self, entries: list[AlterClientQuotasRequestEntryData], step: str) -> None:
        for rows in _portions(entries, RULES_AT_ONCE):
            self._told(step)
            answer = self._ask(api.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=rows))
            for row in answer.entries:
                _check(row.error_code, "a quota", row.error_message)

    def _carry_settings(self) -> None:
        for (kind, name), values in _settings_of(self._found.state, self._node_id).items():
            self._told("copying settings")
            changes = [AlterableConfig(name=key, config_operation=SET, value=text) for key, text in values.items()]
            self._alter_settings(kind, name, changes)

    def _alter_settings(self, kind: int, name: str, changes: list[AlterableConfig]) -> None:
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        answer = self._ask(api.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
        for row in answer.responses:
            _check(row.error_code, f"settings of {_resource(kind, name)}", row.error_message)

    # --- topics -------------------------------------------------------------------------------------------------------

    def _make_topics(self) -> None:
        missing = [topic for topic in self._found.state.topics.values() if not self._has(topic)]
        for topics in _portions_of_partitions(missing):
            self._told(f"creating {len(topics)} topics")
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=topic.name,
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[
                            CreatableReplicaAssignment(partition_index=number, broker_ids=[self._node_id])
                            for number in range(len(topic.epoch_bases))
                        ],
                        configs=[CreatableTopicConfig(name=key, value=text) for key, text in _taken(topic).items()],
                    )
                    for topic in topics
                ],
                timeout_ms=TIMEOUT_MS,
            )
            answer = self._ask(api.CREATE_TOPICS, request)
            for row in answer.topics:
                if row.error_code == ErrorCode.INVALID_CONFIG:
                    raise StartupError(
                        f"the controllers refused topic {row.name}: {row.error_message}; to change the setting, "
                        "start this broker outside the cluster once more"
                    )
                if row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt's, which is checked below
                    _check(row.error_code, f"topic {row.name}", row.error_message)
        self._wait(lambda: all(name in self._member.image.topic_ids for name in self._found.state.topics), "the topics")
        for topic in self._found.state.topics.values():
            if not self._has(topic):
                raise StartupError(
                    f"topic {topic.name} was changed in the cluster in the meantime; delete it there and run the "
                    "command again"
                )
        self._fit_topics()

    def _fit_topics(self) -> None:
        """Change the settings of topics in the cluster to those that the standalone broker has now."""
        resources = []
        for topic in self._found.state.topics.values():
            there = self._member.image.configs.get((TOPIC, topic.name), {})
            changes = settings_changes(there, _taken(topic))
            if changes:
                resources.append(AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=changes))
        for rows in _portions(resources, RULES_AT_ONCE):
            self._told(f"changing settings of {len(rows)} topics")
            answer = self._ask(api.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=rows))
            for row in answer.responses:
                _check(row.error_code, f"settings of topic {row.resource_name}", row.error_message)

    def _has(self, topic: TopicState) -> bool:
        """Return whether the cluster has the topic, with the same partitions, and with this broker as their only
        replica."""
        made = self._member.image.topic(topic.name)
        return (
            made is not None
            and made.partitions.keys() == set(range(len(topic.epoch_bases)))
            and all(each.replicas == (self._node_id,) for each in made.partitions.values())
        )

    # --- epochs and producer ids --------------------------------------------------------------------------------------

    def _raise_epochs(self) -> None:
        """Raise the cluster's leader epochs at least to the epochs in the logs, by fencing and unfencing the broker.

        The batches in the logs have the standalone broker's epochs, and later batches must not have lower epochs. The
        controllers raise the leader epochs of a broker's partitions each time the broker is fenced and unfenced.
        """
        while (short := self._short_of_epochs()) > 0:
            self._told(f"raising leader epochs by {short}")
            for _ in range(-(-short // _TWICE)):
                self._beat(fenced=True)
                self._beat(fenced=False)
            self._wait(partial(self._is_short_by_less, short), "the leader epochs")
            self._settle(lambda: self._short_of_epochs() <= 0)

    def _is_short_by_less(self, epochs: int) -> bool:
        return self._short_of_epochs() < epochs

    def _short_of_epochs(self) -> int:
        there = self._epochs_there()
        return max((epoch - there[key] for key, epoch in self._found.epochs.items()), default=0)

    def _epochs_there(self) -> dict[tuple[str, int], int]:
        image = self._member.image
        found = {}
        for name, number in self._found.epochs:
            topic = image.topic(name)
            if topic is None or number not in topic.partitions:
                raise StartupError(f"topic {name} was deleted in the cluster in the meantime; run the command again")
            found[name, number] = topic.partitions[number].leader_epoch
        return found

    def _beat(self, *, fenced: bool) -> None:
        """Send heartbeats until the controllers have fenced or unfenced the broker, as `fenced` says.

        The heartbeats of the membership cannot be used, since they always ask to be unfenced.
        """
        deadline = time.monotonic() + IMAGE_S_MAX
        while True:
            request = BrokerHeartbeatRequest(
                broker_id=self._node_id,
                broker_epoch=self._member.epoch,
                current_metadata_offset=self._member.image.offset,
                want_fence=fenced,
                want_shut_down=False,
            )
            answer = self._ask(api.BROKER_HEARTBEAT, request)
            _check(answer.error_code, "a heartbeat", None)
            if answer.is_fenced == fenced:
                return
            if time.monotonic() > deadline:
                raise StartupError(
                    "the controllers did not change this broker's fenced state in time; run the command again"
                )
            time.sleep(LOOK_S)

    def _raise_producer_ids(self, done: Handover) -> None:
        """Allocate blocks of producer ids from the controllers, without using them, up to the highest id allocated
        here.

        The controllers allocate from 0, too. Without the raise, a new producer could get the id of a producer in a log.

        Raises StartupError if another broker got a block with ids that are used here. The progress is recorded after
        each answer, because a later run cannot see which broker got a block.
        """
        wanted = self._found.state.next_producer_id
        while done.producer_ids_clear < wanted:
            self._told(f"raising producer ids to {wanted}")
            request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._member.epoch)
            answer = self._ask(api.ALLOCATE_PRODUCER_IDS, request)
            _check(answer.error_code, "producer ids", None)
            self._check_ids_of_others(done.producer_ids_clear, answer.producer_id_start)
            done.producer_ids_clear = answer.producer_id_start + answer.producer_id_len
            handover.write(self._logs.directory, done)

    # --- requests and waits -------------------------------------------------------------------------------------------

    def _ask(self, key: int, request: object) -> Any:
        """Send a request to the controller and return the response. Raises StartupError if no response came."""
        answered = threading.Event()
        answer = self._member.ask(key, request)
        answer.then(lambda _response: answered.set())
        if not answered.wait(ANSWER_S_MAX) or answer.response is None:
            raise StartupError("no controller responded; run the command again when one is available")
        return answer.response

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + IMAGE_S_MAX
        while not condition():
            if self._fault:
                raise StartupError(str(self._fault[0])) from self._fault[0]
            if time.monotonic() > deadline:
                raise StartupError(
                    f"{what} did not appear in the cluster metadata within {IMAGE_S_MAX:g} s; run the command again"
                )
            time.sleep(LOOK_S)

    @staticmethod
    def _settle(condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, but at most SETTLE_S seconds."""
        deadline = time.monotonic() + SETTLE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(LOOK_S)


def settings_changes(there: Mapping[str, str], wanted: Mapping[str, str]) -> list[AlterableConfig]:
    """Return the changes that turn a topic's settings in the cluster into the wanted settings."""
    changes = [
        AlterableConfig(name=key, config_operation=SET, value=text)
        for key, text in wanted.items()
        if there.get(key) != text
    ]
    gone = sorted(there.keys() - wanted.keys())
    return changes + [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in gone]


def _quota_entry(entity: Entity, changes: list[OpData]) -> AlterClientQuotasRequestEntryData:
    parts = [AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return AlterClientQuotasRequestEntryData(entity=parts, ops=changes)


def _joined(rows: list[list[Any]], more: list[list[Any]]) -> list[list[Any]]:
    return rows + [row for row in more if row not in rows]


def _resource(kind: int, name: str) -> str:
    what = {BROKER: "broker", GROUP: "group", CLIENT_METRICS: "subscription"}[kind]
    return f"{what} {name}" if name else "all brokers"


def _refuse_others(what: str, others: Sequence[str]) -> None:
    if others:
        raise StartupError(
            f"the cluster's {what} differ from this broker's and would be overwritten: {_named(others)}; make them "
            "equal first, there or here"
        )


def _check(code: int, what: str, message: str | None) -> None:
    if code:
        raise StartupError(f"the controllers refused {what}: {error_for(code, message).message}")


def _portions(rows: list[Any], count: int) -> Iterator[list[Any]]:
    for first in range(0, len(rows), count):
        yield rows[first : first + count]


def _portions_of_partitions(topics: Iterable[TopicState]) -> Iterator[list[TopicState]]:
    """Yield topics in groups of at most PARTITIONS_AT_ONCE partitions. A topic with more partitions is a group by
    itself."""
    portion: list[TopicState] = []
    partitions = 0
    for topic in topics:
        if portion and partitions + len(topic.epoch_bases) > PARTITIONS_AT_ONCE:
            yield portion
            portion, partitions = [], 0
        portion.append(topic)
        partitions += len(topic.epoch_bases)
    if portion:
        yield portion
