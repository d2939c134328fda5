"""Count a table's entries by holder (a principal at an address); reserve the last tenth of its limit for small holders.

    table is less than 9/10 full    any holder may add entries
    table is fuller than that       only holders of at most SMALL_COUNT entries may add entries
    table has reached its limit     no holder may add entries

No entry is evicted to make room for a new one, so no client can displace another client's entry.

Thread rule: the lock of the counted table guards its `Shares`. `note_refusal` may be called by any thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import RepeatLogger

if TYPE_CHECKING:
    from collections.abc import Hashable

SMALL_COUNT: Final = 100
"""Maximum number of entries that a holder may have and still use the last tenth."""

_log: Final = RepeatLogger(logging.getLogger(__name__))


class Shares:
    """How many entries of a table each holder has, or how large they are. Every method takes constant time."""

    __slots__ = ("_counts", "_small")

    def __init__(self, small: int = SMALL_COUNT) -> None:
        """Begin without entries. A holder with a count of at most `small` may use the last tenth of the limit."""
        self._counts: dict[Hashable, int] = {}
        self._small = small

    def __len__(self) -> int:
        """Return the number of holders with entries."""
        return len(self._counts)

    def of(self, holder: Hashable) -> int:
        """Return how many entries a holder has (or their size)."""
        return self._counts.get(holder, 0)

    def limit_for(self, holder: Hashable, limit: int, size: int = 1) -> int:
        """Return the total size that a table with this limit may reach by adding `size` for this holder."""
        is_small = self._counts.get(holder, 0) + size - 1 <= self._small
        return limit if is_small else limit - limit // 10

    def admits(self, holder: Hashable, total: int, limit: int, size: int = 1) -> bool:
        """Return whether a table accepts `size` more for this holder. `total` is its present size, `limit` its
        limit.
        """
        return total + size <= self.limit_for(holder, limit, size)

    def add(self, holder: Hashable, size: int = 1) -> None:
        """Count a holder's new entry, or the growth of an entry.

        An entry without a holder (None), such as one that was read from the disk, is not counted.
        """
        if holder is None:
            return
        count = self._counts.get(holder, 0) + size
        assert count >= 0, "an entry is counted out once"
        if count:
            self._counts[holder] = count
        else:
            self._counts.pop(holder, None)

    def remove(self, holder: Hashable, size: int = 1) -> None:
        """Stop counting a holder's entry."""
        self.add(holder, -size)


def note_refusal(holder: object, setting: str, limit: int, held: int) -> None:
    """Log that a holder was refused an entry because of a setting's limit, at most once a minute for each setting."""
    _log.warning(
        "refused %s, which holds %d: the last tenth of %s (%d) is reserved for clients that hold at most %d",
        holder,
        held,
        setting,
        limit,
        SMALL_COUNT,
        kind=setting,
    )
