"""Find dead-letter topics that policies chose by exception class. Their names do not contain the group.

Each group publishes its policy in its ledger. Only a limited number of ledger records is read; beyond it, a topic is
found only by its name, or by a command that names its group.

Thread rule: functions belong to the thread that has the Client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.names import ledger_name
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client

READ_MAX: Final = 20_000
"""Ledger records to read, at most."""
DURATION_S_MAX: Final = 3.0
OPEN_S_MAX: Final = 1.0


def published(policy: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the dead-letter topics by exception class of a published policy."""
    found = (policy or {}).get("dead_topics")
    return frozenset(str(topic) for topic in found.values()) if isinstance(found, dict) else frozenset()


def routed_topics(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Return dead-letter topics that policies chose, with their groups, from the readable ledgers among these topics.
    It is empty if the user may not describe ledgers, or no broker answers."""
    known = set(names)
    prefix = ledger_name("")
    try:
        keys = [TopicPartition(name, 0) for name in client.described(name for name in known if name.startswith(prefix))]
        starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST)) if keys else {}
        ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST)) if keys else {}
    except (KafkaError, ClientError):
        return {}
    sizes = {key: ends[key].offset - starts[key].offset for key in keys}
    left, deadline = READ_MAX, time.monotonic() + DURATION_S_MAX
    found: dict[str, str] = {}
    for key in sorted(sizes, key=lambda key: (sizes[key], key)):
        left -= sizes[key]
        if left < 0 or time.monotonic() > deadline:
            break
        group = key.topic.removeprefix(prefix)
        ledger = Ledger(client, group)
        try:
            ledger.refresh(OPEN_S_MAX)
        except (KafkaError, ClientError):  # a transaction is open, or the user may not read it
            continue
        found |= dict.fromkeys(published(ledger.policy) & known, group)
    return found
