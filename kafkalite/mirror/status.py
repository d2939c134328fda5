"""Report the health and metrics of a mirror: records copied, lag and errors.

The status survives a failure of the mirror: the next Mirror object reports to the same status.

Thread rule: the mirror's thread changes the status; any thread may read it.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite.base.metric_families import Family, labels, most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite.mirror.mirror import Mirror

STALE_S: Final = 60.0
"""A mirror without success for this long is not ready."""


class MirrorStatus:
    """The status of one mirror across restarts; see the module."""

    def __init__(self, name: str, source: str) -> None:
        """`source` is the address of the source, for display."""
        self._name = name
        self._source = source
        self._mirror: Mirror | None = None
        self._records: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._transactions = 0
        self._made = time.monotonic()
        self._last_success: float | None = None
        self.failures = 0
        """The number of restarts after a failure."""
        self.last_error = ""
        self.ended = ""
        """Why the mirror has ended for good, or ""."""

    def follows(self, mirror: Mirror) -> None:
        """Report on this mirror from now on."""
        self._mirror = mirror

    def lost(self, error: BaseException | None) -> None:
        """Store that the mirror has ended, with its error if it failed."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            self._records.update(mirror.copied.records)
            self._sizes.update(mirror.copied.sizes)
            self._transactions += mirror.copied.transactions
            self._last_success = mirror.last_success or self._last_success
        if error is not None:
            self.failures += 1
            self.last_error = str(error)

    @property
    def error(self) -> str:
        """The current error, or ""."""
        mirror = self._mirror
        if mirror is None:
            return self.ended or self.last_error or "it has not started yet"
        failing = mirror.failing
        return "" if failing is None else str(failing)

    @property
    def seconds_since_success(self) -> float:
        """Seconds since the last time that a transaction was committed or there was nothing new to copy.

        Before the first time, seconds since this object was created.
        """
        mirror = self._mirror
        last = self._last_success if mirror is None else mirror.last_success or self._last_success
        return time.monotonic() - (self._made if last is None else last)

    def not_ready(self) -> list[str]:
        """Return the reasons why the mirror does not copy; none if it does."""
        mirror = self._mirror
        what = f"mirror {self._name} of {self._source}"
        if self.ended:
            return [f"{what} has stopped: {self.ended}"]
        if mirror is None or mirror.last_success is None:
            return [f"{what} does not copy: {self.error or 'it has not started yet'}"]
        stale = self.seconds_since_success
        return [f"{what} has copied nothing for {stale:.0f} s: {self.error or 'busy'}"] if stale > STALE_S else []

    def left_behind(self) -> list[str]:
        """Return a sentence for each topic that cannot be copied."""
        mirror = self._mirror
        rows = {} if mirror is None else mirror.states.rows
        return [
            f"mirror {self._name} of {self._source} cannot copy topic {topic}: {row.reason}"
            for topic, row in sorted(rows.items())
        ]

    def families(self) -> Iterator[Family]:
        """Yield the mirror's metrics."""
        mirror = self._mirror
        copied = None if mirror is None else mirror.copied
        records = self._records + Counter({} if copied is None else dict(copied.records))
        sizes = self._sizes + Counter({} if copied is None else dict(copied.sizes))
        transactions = self._transactions + (0 if copied is None else copied.transactions)
        own = labels(mirror=self._name)
        yield Family("kafkalite_mirror_records", "counter", "Records copied, by topic.", self._rows(records))
        yield Family("kafkalite_mirror_bytes", "counter", "Bytes of batches copied, by topic.", self._rows(sizes))
        yield Family("kafkalite_mirror_transactions", "counter", "Transactions committed.", [(own, transactions)])
        lags = {} if mirror is None else mirror.lags()
        yield Family("kafkalite_mirror_lag", "gauge", "Offsets not copied yet, by topic.", self._rows(lags))
        behind = {} if mirror is None else mirror.states.rows
        followed = set() if mirror is None else set(mirror.copied.topics)
        up = {topic: int(topic not in behind) for topic in followed | behind.keys()}
        text = "1 while the topic is copied, 0 while it cannot be copied."
        yield Family("kafkalite_mirror_topic_up", "gauge", text, self._rows(up))
        if behind:
            rows = [(labels(mirror=self._name, topic=name, error=row.reason), 1) for name, row in behind.items()]
            yield Family(
                "kafkalite_mirror_topic_error_info",
                "gauge",
                "Always 1; the label has the reason why the topic cannot be copied.",
                rows,
            )
        yield Family(
            "kafkalite_mirror_last_success_seconds_ago",
            "gauge",
            "Seconds since a transaction was committed or there was nothing to copy.",
            [(own, self.seconds_since_success)],
        )
        yield Family(
            "kafkalite_mirror_up",
            "gauge",
            "1 while the mirror copies, otherwise 0.",
            [(own, int(not self.not_ready()))],
        )
        yield Family("kafkalite_mirror_failures", "counter", "Restarts after a failure.", [(own, self.failures)])
        if error := self.error:
            rows = [(labels(mirror=self._name, error=error), 1)]
            yield Family("kafkalite_mirror_error_info", "gauge", "Always 1; the label has the current error.", rows)
        notes = 0 if copied is None else len(copied.notes)
        yield Family("kafkalite_mirror_notes", "gauge", "Distinct messages for the operator.", [(own, notes)])
        if mirror is not None and mirror.carried.groups is not None:
            positions = sum(map(len, list(mirror.carried.groups.carried.values())))
            text = "Group offsets synchronized to the target."
            yield Family("kafkalite_mirror_group_positions", "gauge", text, [(own, positions)])

    def _rows(self, counts: Mapping[str, float]) -> list[tuple[str, float]]:
        return [(labels(mirror=self._name, topic=topic), count) for topic, count in most(counts.items())]
