"""Split the configuration of a client library into settings of a member's consumer and of its producers.

    configuration   {"bootstrap_servers": …, "group_id": "billing", "fetch_min_bytes": 1, "compression_type": "lz4"}
    consumer        {"bootstrap_servers": …, "fetch_min_bytes": 1}
    producer        {"bootstrap_servers": …, "compression_type": "lz4"}

The member commits offsets itself, reads only committed records, and starts at the earliest offset. A configuration that
contradicts this, for example with enable_auto_commit=True, is refused with a ValueError.

Thread rule: functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.failures.arguments import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NEEDED: Final = {
    "enable_auto_commit": ("false",),
    "isolation_level": ("read_committed",),
    "auto_offset_reset": ("earliest", "smallest", "beginning"),
}
"""Setting, with underscores → the values that a member accepts."""
WHY: Final = {
    "enable_auto_commit": "the member commits offsets itself",
    "isolation_level": "records of aborted transactions must not be handled",
    "auto_offset_reset": "otherwise the first records of a topic are skipped",
}
INSTEAD: Final = {
    "key_deserializer": "keys are passed as bytes; remove it",
    "value_deserializer": "use decode= of the policy instead",
    "key_serializer": "keys are passed as bytes; remove it",
    "value_serializer": "values are passed as bytes; remove it",
    "transactional_id": "set member= instead, the name of the member",
    "topics": "the topics come from the policy; remove it",
}
"""Settings that a member refuses → what to use instead."""


class Divided(NamedTuple):
    """The settings of consumer and producers. Settings that the member chooses itself are left out."""

    consumer: dict[str, Any]
    producer: dict[str, Any]
    group: str | None
    """The group id, if the configuration has one."""


def divided(
    config: Mapping[str, Any],
    consumer_names: Collection[str] | None,
    producer_names: Collection[str] | None,
    consumer_only: tuple[str, ...] = (),
) -> Divided:
    """Check a configuration and split it.

    `consumer_names` and `producer_names` are the settings that the client library knows. If they are None, the library
    itself refuses unknown settings. `consumer_only` are prefixes of settings that producers do not get.

    Raises ValueError for a setting that a member refuses, and TypeError for an unknown setting.
    """
    if consumer_names is not None and producer_names is not None:
        refuse_unknown("the configuration", config, {*consumer_names, *producer_names})
    found = Divided({}, {}, next((config[name] for name in ("group_id", "group.id") if config.get(name)), None))
    refuse_unfit(config)
    for name, value in config.items():
        plain = name.replace(".", "_")
        if plain in NEEDED:
            continue
        if plain in INSTEAD and value is not None:
            raise ValueError(f"{name} is set: {INSTEAD[plain]}")
        if plain == "group_id":
            continue
        if consumer_names is None or name in consumer_names:
            found.consumer[name] = value
        if not name.startswith(consumer_only) and (producer_names is None or name in producer_names):
            found.producer[name] = value
    return found


def refuse_unfit(config: Mapping[str, Any]) -> None:
    """Raise ValueError if settings have values that a member refuses. The message names each setting."""
    values = {name.replace(".", "_"): (name, value) for name, value in config.items()}
    faults = []
    for plain, fitting in NEEDED.items():
        name, value = values.get(plain, ("", fitting[0]))
        if str(value).lower() not in fitting:
            faults.append(f"{name} must be {fitting[0]}, not {value!r}: {WHY[plain]}")
    if faults:
        raise ValueError(". ".join(faults))


def require_group(given: str | None, group: str) -> None:
    """Raise ValueError if the configuration's group is not that of the policy."""
    if given not in {None, group}:
        raise ValueError(f"the configuration has group {given!r}, but the policy has group {group!r}")


def require_no_topics(consumer: Any) -> None:
    """Raise ValueError if a consumer has a subscription or an assignment."""
    if consumer.subscription() or consumer.assignment():
        raise ValueError(
            "the consumer has a subscription or assignment; create it without one: the policy sets the topics"
        )
