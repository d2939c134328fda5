"""Compute the failure ratio over a sliding time window, which moves in steps of 1/32 of its length.

Thread rule: one thread at a time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SLOT_COUNT: Final = 32


class Window:
    """The outcomes of the last `over_ms`. The ratio is not used below `least` outcomes."""

    def __init__(self, ratio: float, over_ms: int, least: int) -> None:
        self._ratio = ratio
        self._slot_ms = max(over_ms / SLOT_COUNT, 1.0)
        self._least = least
        self._slots: deque[list[int]] = deque()
        """Slot number, outcomes, failures."""
        self._count = 0
        self._failed = 0

    def note(self, ms: float, *, failed: bool) -> None:
        """Add one outcome."""
        self._slide(ms)
        slot = int(ms / self._slot_ms)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append([slot, 0, 0])
        self._slots[-1][1] += 1
        self._slots[-1][2] += failed
        self._count += 1
        self._failed += failed

    def _slide(self, ms: float) -> None:
        oldest = int(ms / self._slot_ms) - SLOT_COUNT
        while self._slots and self._slots[0][0] <= oldest:
            _, count, failed = self._slots.popleft()
            self._count -= count
            self._failed -= failed

    def forget(self) -> None:
        """Forget all outcomes."""
        self._slots.clear()
        self._count = self._failed = 0

    @property
    def ratio(self) -> float:
        """The number of failures divided by the number of outcomes; 0 without outcomes."""
        return self._failed / self._count if self._count else 0.0

    @property
    def exceeded(self) -> bool:
        """Whether there are enough outcomes and their failure ratio exceeds the limit."""
        return self._count >= self._least and self.ratio > self._ratio
