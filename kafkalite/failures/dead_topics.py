"""Find the dead-letter topics that policies choose by exception class (`Policy.dead_topics`).

These topics can have any name, so the name does not show the group. Each group that writes dead letters publishes its
policy in its ledger, and this module reads the policies from the ledgers.

Thread rule: functions belong to the thread that has the Client; any thread may use a RoutedTopics.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.failures.committed_reading import CommittedTail, ends_of
from kafkalite.failures.names import ledger_name
from kafkalite.failures.rows import POLICY_KEY
from kafkalite.failures.topics import LEDGER_PARTITION
from kafkalite.model import OFFSET_EARLIEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalite.client import Client

READ_MAX: Final = 20_000
"""Ledger records that one call reads, at most."""
DURATION_S_MAX: Final = 3.0
OPEN_S_MAX: Final = 1.0


def published(policy: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the dead-letter topics that a published policy chooses by exception class."""
    found = (policy or {}).get("dead_topics")
    return frozenset(str(topic) for topic in found.values()) if isinstance(found, dict) else frozenset()


class RoutedTopics:
    """Finds the dead-letter topics that policies choose. Each call reads only ledger records that are new since the
    last call.

    Thread rule: any thread, each with its own client. The clients of all calls must have the same user.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._policies: dict[TopicPartition, PolicyReader] = {}

    def find(self, client: Client, names: Iterable[str]) -> dict[str, str]:
        """Return the dead-letter topics among `names`, each with its group. The policies are read from the ledgers
        among `names`.

        A call reads a limited number of ledger records, so it may miss a topic.

        The result is empty if the user is not allowed to describe ledgers, or if no broker responds.
        """
        known, prefix = set(names), ledger_name("")
        if self._lock.acquire(timeout=DURATION_S_MAX):  # else another thread reads: return what it knows so far
            try:
                self._refresh(client, [name for name in known if name.startswith(prefix)])
            except (KafkaError, ClientError):
                return {}
            finally:
                self._lock.release()
        found: dict[str, str] = {}
        for key, reader in sorted(self._policies.copy().items()):
            if key.topic in known:
                found |= dict.fromkeys(published(reader.policy) & known, key.topic.removeprefix(prefix))
        return found

    def _refresh(self, client: Client, ledgers: Iterable[str]) -> None:
        """Read the new records of these ledgers, beginning with the ledger that has the fewest new records.

        Raises KafkaError and ClientError.
        """
        keys = [TopicPartition(name, LEDGER_PARTITION) for name in client.described(ledgers)]
        for key in self._policies.keys() - keys:
            del self._policies[key]
        fresh = [key for key in keys if key not in self._policies]
        starts = client.list_offsets(dict.fromkeys(fresh, OFFSET_EARLIEST)) if fresh else {}
        self._policies |= {key: PolicyReader(key, starts[key].offset) for key in fresh}
        ends = ends_of(client, keys) if keys else {}
        counts = {key: ends[key] - self._policies[key].tail.positions.get(key, 0) for key in keys}
        left, deadline = READ_MAX, time.monotonic() + DURATION_S_MAX
        for key in sorted(counts, key=lambda key: (counts[key], key)):
            left -= max(counts[key], 0)
            if left < 0 or time.monotonic() > deadline:
                break
            try:
                self._policies[key].tail.read(client, {key: ends[key]}, OPEN_S_MAX)
            except (KafkaError, ClientError):  # a transaction is open, or the user may not read it
                continue


class PolicyReader:
    """The policy in one partition of a ledger."""

    def __init__(self, key: TopicPartition, position: int) -> None:
        self.policy: dict[str, Any] | None = None
        self.tail = CommittedTail(self._take, self._forget, {key: position})

    def _take(self, key: bytes, value: bytes | None) -> None:
        if key == POLICY_KEY.encode():
            with contextlib.suppress(ValueError):  # of a version that this one cannot read
                self.policy = None if value is None else json.loads(value)

    def _forget(self, reason: str) -> None:
        del reason
        self.policy = None


def routed_topics(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Return the topics among `names` that policies choose as dead-letter topics, each with its group.

    This is one call of RoutedTopics.find.
    """
    return RoutedTopics().find(client, names)
