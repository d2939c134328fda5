"""Look up topics and partitions for handlers, and check whether new topics and partitions may be created.

Errors are Kafka's. No function blocks or changes a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.errors import (
    ErrorCode,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
)
from kafkalite.model import topic_name_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.handlers.context import BrokerServices, RequestContext
    from kafkalite.broker.log.partition_log import PartitionLog

NO_LEADER_EPOCH: Final = -1
USE_DEFAULT: Final = -1
"""Means the broker's default in CreateTopics."""

_CORDONED: Final = "the only broker's data directory is cordoned (cordoned.log.dirs)"


def find_partition(
    context: RequestContext,
    topic_name: str,
    index: int,
    current_leader_epoch: int = NO_LEADER_EPOCH,
    *,
    followed: bool = False,
) -> tuple[PartitionLog | None, ErrorCode]:
    """Return (log, NONE), or (None, error code).

    A `current_leader_epoch` of -1 is not checked (KIP-320). If `followed`, return also a log that another broker leads.
    """
    topic = context.broker.logs.topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = topic.partitions[index]
    if log.offline:
        return None, ErrorCode.KAFKA_STORAGE_ERROR
    if not log.led and not log.segments:
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch not in (NO_LEADER_EPOCH, log.leader_epoch):
        if current_leader_epoch < log.leader_epoch:
            return None, ErrorCode.FENCED_LEADER_EPOCH
        return None, ErrorCode.UNKNOWN_LEADER_EPOCH
    return (log, ErrorCode.NONE) if log.led or followed else (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def check_new_name(services: BrokerServices, name: str) -> None:
    """Raise InvalidTopic or TopicAlreadyExists unless a topic of this name may be created."""
    problem = topic_name_error(name, services.config.topic_name_max_length)
    if problem is not None:
        raise InvalidTopic(problem)
    topics = services.logs.topics
    if name in topics:
        raise TopicAlreadyExists(f"topic {name} already exists")
    if "." in name or "_" in name:
        other = _census(topics).squashed.get(_squashed(name))
        if other is not None:
            raise InvalidTopic(f"topic {name} collides with topic {other}: '.' and '_' are equivalent in metric names")


class _Census(NamedTuple):
    """Totals and normalized names of all topics."""

    topics: Mapping[str, Topic]
    squashed: dict[str, str]
    """Name with '.' replaced by '_' → the name."""
    partition_count: int


_last_census = _Census({}, {}, 0)  # any thread replaces it


def _census(topics: Mapping[str, Topic]) -> _Census:
    """Return the totals of these topics, computed once per mapping, since one request may check 90,000 names."""
    global _last_census
    census = _last_census
    if census.topics is not topics:
        count = sum(len(topic.partitions) for topic in topics.values())
        _last_census = census = _Census(topics, {_squashed(name): name for name in topics}, count)
    return census


def partition_total(topics: Mapping[str, Topic]) -> int:
    """Return the number of partitions of all topics."""
    return _census(topics).partition_count


def _squashed(name: str) -> str:
    return name.replace(".", "_")


def partition_count(context: RequestContext, wanted: int) -> int:
    """Return the number of partitions for a new topic. InvalidPartitions or PolicyViolation if it is not allowed."""
    if wanted == USE_DEFAULT:
        wanted = context.broker.config.num_partitions
    if wanted < 1:
        raise InvalidPartitions(f"invalid partition count {wanted}; a topic needs at least 1")
    check_room(context, wanted)
    return wanted


def check_room(context: RequestContext, added: int, *, assigned: bool = False) -> None:
    """Raise PolicyViolation if the added partitions exceed this client's part of max.partitions.

    If the data directory is cordoned, raise InvalidReplicationFactor, or InvalidReplicaAssignment if the partitions are
    `assigned` manually.
    """
    services = context.broker
    if services.cordoned and assigned:
        raise InvalidReplicaAssignment(_CORDONED)
    if services.cordoned:
        raise InvalidReplicationFactor(_CORDONED)
    limit = services.config.max_partitions
    if added <= limit:
        present = _census(services.logs.topics).partition_count
        if services.partition_shares.admits(context.holder, present, limit, added):
            return
    raise PolicyViolation(f"{added} more partitions would exceed max.partitions={limit}")


def charge(context: RequestContext, name: str, added: int) -> None:
    """Charge new partitions to the client that created them."""
    context.broker.partition_shares.charge(name, context.holder, added, context.broker.logs.topics)


def check_replication_factor(services: BrokerServices, wanted: int) -> bool:
    """Return whether the broker accepts the requested replication factor but keeps only one replica.

    InvalidReplicationFactor if the broker refuses it.
    """
    if wanted == USE_DEFAULT:
        wanted = services.config.default_replication_factor
    if wanted < 1:
        raise InvalidReplicationFactor(
            f"invalid replication factor {wanted}; expected at least 1, or -1 for the default"
        )
    if wanted > 1 and not services.config.replication_factor_accept_any:
        raise InvalidReplicationFactor(
            f"replication factor {wanted} exceeds the number of brokers, 1; set replication.factor.accept.any=true "
            "to accept it and keep one replica"
        )
    return wanted > 1
