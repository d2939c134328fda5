"""Read a group's ledger: the topic that stores the states of failed records, and the group's policy.

    with Client("127.0.0.1:9092") as client:
        ledger = Ledger(client, "billing")
        ledger.refresh()
        for where, row in ledger.records():
            print(where, row.state)

A row is a record of the ledger. All committed rows below the high watermark are read
(kafkalite.failures.committed_reading).

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kafkalite.errors import UnknownTopicOrPartition
from kafkalite.failures.committed_reading import OPEN_S_MAX, CommittedTail, ends_of
from kafkalite.failures.names import ledger_name, parse_origin
from kafkalite.failures.rows import BREAKER_PREFIX, HAND_PREFIX, OPEN_PREFIX, POLICY_KEY, Row, decode_row
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.client import Client

logger = logging.getLogger(__name__)


class Ledger:
    """The ledger of a group, as of the last `refresh`. `exists` is true if the topic exists."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self.topic = ledger_name(group)
        self._tail = CommittedTail(self._take, self._forget)
        self._rows: dict[TopicPartition, dict[int, Row]] = defaultdict(dict)
        self.opened: dict[TopicPartition, Row] = {}
        """Partitions that are assigned, or whose last member did not shut down cleanly."""
        self.hands: dict[TopicPartition, Row] = {}
        """By partition, the last mark that was written (kafkalite.failures.marks)."""
        self.breakers: dict[str, Row] = {}
        """Members whose breaker is open, or was open when they were killed (kafkalite.failures.breaker_status)."""
        self.policy: dict[str, Any] | None = None
        """The policy as the group published it."""
        self.exists = False
        self.unread_count = 0
        """Number of rows that this version cannot read."""

    def find(self) -> list[TopicPartition]:
        """Return the ledger's partitions; none if the topic does not exist. Raises TopicAuthorizationFailed."""
        try:
            keys = [TopicPartition(self.topic, number) for number in self._client.partitions(self.topic)]
        except UnknownTopicOrPartition:
            keys = []
        self.exists = bool(keys)
        return keys

    def refresh(self, timeout_s: float = OPEN_S_MAX) -> None:
        """Read up to the current end. Raises RangeUnavailable after `timeout_s` without progress because of an open
        transaction.

        The rows of all source records whose offsets are already committed are read. If the ledger was restored from a
        backup, truncated or recreated, it is read again from its start.
        """
        keys = self.find()
        if not keys:
            return
        self._tail.read(self._client, ends_of(self._client, keys), timeout_s)

    def _forget(self, reason: str) -> None:
        """Forget all rows, because their log no longer exists."""
        logger.warning("%s; reading the ledger again from the start", reason)
        for known in (self._rows, self.opened, self.hands, self.breakers):
            known.clear()
        self.policy = None
        self.unread_count = 0

    def _take(self, key: bytes, value: bytes | None) -> None:
        text = key.decode(errors="replace")
        try:
            if text == POLICY_KEY:
                self.policy = None if value is None else json.loads(value)
            elif text.startswith(BREAKER_PREFIX):
                member = text.removeprefix(BREAKER_PREFIX)
                if value is None:
                    self.breakers.pop(member, None)
                else:
                    self.breakers[member] = decode_row(value)
            elif text.startswith(HAND_PREFIX):
                topic, _, number = text.removeprefix(HAND_PREFIX).rpartition("/")
                if value is None:
                    self.hands.pop(TopicPartition(topic, int(number)), None)
                else:
                    self.hands[TopicPartition(topic, int(number))] = decode_row(value)
            elif text.startswith(OPEN_PREFIX):
                topic, _, number = text.removeprefix(OPEN_PREFIX).rpartition("-")
                place = TopicPartition(topic, int(number))
                if value is None:
                    self.opened.pop(place, None)
                else:
                    self.opened[place] = decode_row(value)
            else:
                origin, offset = parse_origin(text)
                if value is None:
                    self._rows[origin].pop(offset, None)
                else:
                    self._rows[origin][offset] = decode_row(value)
        except ValueError:
            self.unread_count += 1

    @property
    def doubted(self) -> dict[TopicPartition, Row]:
        """The partitions whose last owner shut down uncleanly, and whose records are noted before they are handled.

        A row covers the records from offset `position` to before `until`. They are noted since time `last`.
        """
        return {place: row for place, row in sorted(self.opened.items()) if row.until > row.position}

    @property
    def rows(self) -> dict[TopicPartition, dict[int, Row]]:
        """The rows by source partition and offset."""
        return self._rows

    def records(self) -> Iterator[tuple[str, Row]]:
        """Yield all rows, in the order of partitions and offsets."""
        for partition in sorted(self._rows):
            for offset in sorted(self._rows[partition]):
                yield f"{partition}-{offset}", self._rows[partition][offset]
