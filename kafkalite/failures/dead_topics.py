"""Find dead-letter topics that a policy chose by exception class: their names do not say whose they are.

A group publishes its policy in its ledger. Reading the ledgers of a cluster has bounds; beyond them a topic is found
only by its name, or by the command that names its group.

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
"""Offsets of ledgers that are read."""
DURATION_S_MAX: Final = 3.0
OPEN_S_MAX: Final = 1.0


def published(policy: Mapping[str, Any] | None) -> frozenset[str]:
    """The dead-letter topics by exception class of a policy, as its ledger has it."""
    found = (policy or {}).get("dead_topics")
    return frozenset(str(topic) for topic in found.values()) if isinstance(found, dict) else frozenset()


def routed_topics(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Return the dead-letter topics that policies chose, each with its group, as far as the ledgers among these topics
    can be read. KafkaError, ClientError where no offsets can be asked for."""
    known = set(names)
    prefix = ledger_name("")
    keys = [TopicPartition(name, 0) for name in client.described(name for name in known if name.startswith(prefix))]
    if not keys:
        return {}
    starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST))
    ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST))
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
        except (KafkaError, ClientError):  # a transaction is open, or we may not read it
            continue
        found |= dict.fromkeys(published(ledger.policy) & known, group)
    return found
