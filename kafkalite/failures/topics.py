"""Create the retry topics, dead-letter topics and ledger that a policy needs, or check those of a live cluster.

Retry and dead-letter topics use the broker's time (LogAppendTime). If a letter kept the timestamp of an old record,
retention could delete the letter at once. Dead letters have unlimited retention.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.acls import AclOperation
from kafkalite.errors import KafkaError, StartupError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.failures.policy import summary
from kafkalite.failures.rows import POLICY_KEY
from kafkalite.model import uuid_text
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.client import Client
    from kafkalite.failures.policy import Policy

SIZE_MORE: Final = 64 * 1024
"""Bytes by which a letter may be larger than its record."""
SIZE_DEFAULT: Final = 1024 * 1024 + 12
LETTER_SETTINGS: Final = {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}
DEAD_LETTER_SETTINGS: Final = {**LETTER_SETTINGS, "retention.ms": "-1", "retention.bytes": "-1"}
LEDGER_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}


LEDGER_PARTITION: Final = 0


class Need(NamedTuple):
    """A topic that a policy requires."""

    name: str
    partitions: int
    settings: Mapping[str, str]


def needs(policy: Policy, client: Client) -> list[Need]:
    """Return the topics that the policy needs in addition to its source topics.

    Raises UnknownTopicOrPartition if a source topic is missing.
    """
    found: list[Need] = []
    most = largest = 0
    for topic in policy.topics:
        count = len(client.topic(topic).partitions)
        size = str(size_max(client, topic) + SIZE_MORE)
        plain = {**LETTER_SETTINGS, "max.message.bytes": size}
        if policy.uses_topics or policy.writes_letters:
            delays = {policy.layout.retry(topic, delay): delay for delay in policy.layout.delays_ms}
            for name in policy.layout.retries(topic):
                keep = policy.retention_ms(max(policy.layout.delays_ms) if policy.layout.by_key else delays[name])
                found.append(Need(name, count, {**plain, "retention.ms": str(keep)}))
        if policy.writes_letters:
            kept = {**plain, **DEAD_LETTER_SETTINGS, "cleanup.policy": policy.cleanup}
            found.append(Need(policy.layout.dead(topic), count, kept))
            most, largest = max(most, count), max(largest, int(size))
    for topic in dict.fromkeys(policy.layout.dead_topics):
        kept = {**DEAD_LETTER_SETTINGS, "cleanup.policy": policy.cleanup, "max.message.bytes": str(largest)}
        found.append(Need(topic, most, kept))
    if policy.keeps_ledger:
        found.append(Need(policy.layout.ledger, 1, LEDGER_SETTINGS))
    return found


def topic_ids(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Return the ids of those topics that exist and have one, by name."""
    found = client.described(names)
    return {name: uuid_text(row.topic_id) for name, row in found.items() if any(row.topic_id)}


def size_max(client: Client, topic: str) -> int:
    """Return a topic's max.message.bytes."""
    for entry in client.admin.describe_topic_configs(topic, ["max.message.bytes"]):
        if entry.value is not None:
            return int(entry.value)
    return SIZE_DEFAULT


def create_line(need: Need) -> str:
    """Return the `kafkalite topics create` command for a topic."""
    settings = " ".join(f"--set {name}={value}" for name, value in need.settings.items())
    return f"kafkalite topics create {need.name} -p {need.partitions} {settings}"


def ensure(policy: Policy, client: Client) -> list[str]:
    """Create missing topics, and add partitions if the source topic has more.

    Return commands for the topics that could not be created or changed.
    """
    missing = []
    for need in needs(policy, client):
        try:
            there = client.partition_counts([need.name]).get(need.name, 0)
            if not there:
                client.admin.create_topic(need.name, need.partitions, configs=need.settings)
            elif there < need.partitions and need.name != policy.layout.ledger:
                client.admin.add_partitions(need.name, need.partitions)
        except TopicAlreadyExists:
            pass  # another member created it
        except KafkaError as error:
            missing.append(f"{create_line(need)}    # {error.name}")
    return missing


def publish(policy: Policy, client: Client) -> None:
    """Write the policy to the group's ledger, for users and tools."""
    value = json.dumps(summary(policy), ensure_ascii=False).encode()
    client.produce(policy.layout.ledger, LEDGER_PARTITION, [Record(-1, -1, POLICY_KEY.encode(), value)])


def faults(policy: Policy, client: Client) -> Iterator[str]:
    """Yield a sentence for each fault of a policy's topics on a live cluster. Changes nothing."""
    try:
        wanted = needs(policy, client)
    except UnknownTopicOrPartition as error:
        yield f"a topic of the policy is missing: {error.message}"
        return
    except KafkaError as error:
        yield f"a topic of the policy cannot be checked: {error.message} ({error.name})"
        return
    for need in wanted:
        try:
            there = len(client.topic(need.name).partitions)
            entries = client.admin.describe_topic_configs(need.name, list(need.settings))
        except UnknownTopicOrPartition:
            yield f"{need.name} is missing; create it: {create_line(need)}"
            continue
        except KafkaError as error:
            yield f"{need.name} cannot be checked: {error.message} ({error.name})"
            continue
        if there < need.partitions:
            yield f"{need.name} has {there} partitions but needs {need.partitions}, like its source topic"
        values = {entry.name: entry.value or "" for entry in entries}
        for name, value in need.settings.items():
            said = setting_fault(need.name, name, values.get(name, ""), value)
            if said:
                yield said
    yield from missing_rights(policy, client)


def operations(policy: Policy) -> dict[str, frozenset[AclOperation]]:
    """Return the topics that a member uses, each with the operations that it needs."""
    read_write = frozenset({AclOperation.READ, AclOperation.WRITE})
    found = dict.fromkeys(policy.topics, frozenset({AclOperation.READ}))
    if policy.uses_topics or policy.writes_letters:
        found |= {name: read_write for topic in policy.topics for name in policy.layout.retries(topic)}
    if policy.writes_letters:
        found |= dict.fromkeys(policy.layout.dead_lanes, frozenset({AclOperation.WRITE}))
    if policy.keeps_ledger:
        found[policy.layout.ledger] = read_write
    return found


def require_topics(policy: Policy, client: Client) -> None:
    """Raise StartupError if a topic of the policy is missing. No permission to describe settings is needed."""
    wanted = operations(policy)
    missing = sorted(wanted.keys() - client.partition_counts(wanted).keys())
    if missing:
        raise StartupError(
            f"topics are missing, or this user lacks permission for them: {', '.join(missing)}; create them, or let "
            "the member create them (without --no-create or create_topics=False)"
        )


def missing_rights(policy: Policy, client: Client) -> Iterator[str]:
    """Yield the permissions on existing topics that a member needs and this client's user lacks."""
    wanted = operations(policy)
    for topic, allowed in sorted(client.acls.my_operations(wanted).items()):
        lacking = sorted(operation.name.lower() for operation in wanted[topic] - allowed)
        if lacking:
            yield f"{topic}: this user lacks the ACL for {' and '.join(lacking)}"


def setting_fault(topic: str, name: str, value: str, wanted: str) -> str:
    """Return a sentence about a topic setting with an unsuitable value, or ""."""
    match name:
        case "retention.ms" if value != "-1" and (wanted == "-1" or int(value) < int(wanted)):
            return f"{topic} has retention.ms={value}; set it to {wanted}"
        case "retention.bytes" if value != wanted:
            return f"{topic} has retention.bytes={value}, which may delete unresolved records; set it to {wanted}"
        case "max.message.bytes" if int(value) < int(wanted):
            return f"{topic} has max.message.bytes={value}, too small for its records; set it to {wanted}"
        case "message.timestamp.type" if value != wanted:
            return f"{topic} has message.timestamp.type={value}, so it may expire records at once; set it to {wanted}"
        case "cleanup.policy" if value != wanted:
            return f"{topic} has cleanup.policy={value}; set it to {wanted}"
    return ""
