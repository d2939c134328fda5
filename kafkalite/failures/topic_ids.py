"""Tell letters of a topic that was deleted and created again from those of the new topic.

A ledger row is found by topic name, partition and offset. So an old letter that still waits in a retry topic shares its
row with the record that now has its offset. Once the row is that of the new record, an old letter must not change it.

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.failures.names import origin_text
from kafkalite.failures.rows import WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.failures.lanes import Item, Verdict
    from kafkalite.failures.rows import Row
    from kafkalite.model import TopicPartition


class TopicIds:
    """The ids of source and dead-letter topics, as of the last assignment, and the letters of earlier topics."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._letters: dict[str, str] = {}
        """By id of a letter of an earlier topic, the id of that topic."""
        self._replaced: dict[str, bool] = {}
        """By source record of such letters, whether the row is now that of the new topic's record."""

    def assigned(self, topic_ids: Mapping[str, str]) -> None:
        """Take the current ids by name."""
        self._current.update(topic_ids)

    def found(self, origin: TopicPartition, rows: Mapping[int, Row]) -> None:
        """Take the ledger rows of a source partition whose retry partition was assigned."""
        current = self._current.get(origin.topic, "")
        for offset, row in rows.items():
            if row.state in WAITING and not row.concerns(current):
                self._letters[row.id] = row.topic_id
                self._replaced.setdefault(origin_text(origin, offset), False)
            elif self._replaced and (where := origin_text(origin, offset)) in self._replaced:
                self._replaced[where] = True

    def of_letter(self, letter_id: str) -> str:
        """Return the id of the earlier topic that the letter belongs to; "" for other letters."""
        return self._letters.get(letter_id, "")

    def of(self, item: Item) -> str:
        """Return the id of a record's source topic; "" if it is unknown."""
        return item.topic_id or self._current.get(item.origin.topic, "")

    def writes_row(self, item: Item, verdict: Verdict) -> bool:
        """Return whether to write the row of a verdict: not if it would change the row of a new topic's record."""
        if not verdict.writes_row or not self._replaced:
            return verdict.writes_row
        where = origin_text(item.origin, item.origin_offset)
        if where not in self._replaced:
            return True
        current = self._current.get(item.origin.topic, "")
        if item.topic_id and current and item.topic_id != current:
            if verdict.put is not None and verdict.put.letter is not None:
                self._letters[verdict.put.letter.id] = item.topic_id
            return not self._replaced[where]
        self._replaced[where] = verdict.row is not None
        return True
