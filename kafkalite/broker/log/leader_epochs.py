"""Keep the start offset of each leader epoch of a log, in the file leader-epoch-checkpoint.

    entries     (epoch, start offset), both rising; the last one is the epoch of the newest batch, or of a leader that
                has not written yet
    look-up     the end offset of epoch E: the start of the next epoch, or the log end

A look-up has the same result as in Kafka's LeaderEpochFileCache. A change is durable when its method returns, except
for `begin` and `save(durable=False)`.

Thread rule: changes need the log's lock. `entries` is replaced as a whole, and any thread may read it. Changes block.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kafkalite.broker.log import checkpoints, files

if TYPE_CHECKING:
    from collections.abc import Iterable

UNDEFINED: Final = -1
"""Means an unknown epoch or offset, as in Kafka."""


class LeaderEpochs:
    """The leader epochs of one log."""

    __slots__ = ("_path", "entries")

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/{files.EPOCHS_NAME}"
        self.entries: tuple[tuple[int, int], ...] = ()

    @property
    def latest(self) -> int:
        """The newest epoch; UNDEFINED without entries."""
        return self.entries[-1][0] if self.entries else UNDEFINED

    def load(self, entries: Iterable[tuple[int, int]]) -> None:
        """Set the entries that were read from the file."""
        self.entries = tuple(entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add the start of an epoch; return whether the entry was new. OSError."""
        entries = self._with(epoch, start_offset)
        if entries is self.entries:
            return False
        self._replace(entries)
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Add the start of an epoch without writing the file; call `save` before the first batch of the epoch.

        A crash before the save is harmless: a start drops an epoch without batches.
        """
        self.entries = self._with(epoch, start_offset)

    def save(self, *, durable: bool = True) -> None:
        """Write the entries; unless `durable`, the log's next flush has to sync the file. OSError."""
        if durable:
            self._replace(self.entries)
        else:
            checkpoints.write_epochs(self._path, self.entries)

    def _with(self, epoch: int, start_offset: int) -> tuple[tuple[int, int], ...]:
        """Return the entries with a new one. It replaces all entries with the same or a later epoch, and all entries at
        the same or a later offset.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"invalid leader epoch {epoch} with start offset {start_offset}")
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return self.entries
        kept = list(self.entries)
        while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
            kept.pop()
        return (*kept, (epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return (largest epoch up to `epoch`, its end offset).

        Return (UNDEFINED, UNDEFINED) if there are no entries or `epoch` is above all of them. If `epoch` is below all
        entries, return `epoch` and the start offset of the first entry."""
        entries = self.entries
        if epoch == UNDEFINED or not entries or epoch > entries[-1][0]:
            return UNDEFINED, UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end
        above = next(i for i, entry in enumerate(entries) if entry[0] > epoch)
        return (entries[above - 1][0] if above else epoch), entries[above][1]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at an offset; UNDEFINED before the first entry."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=UNDEFINED)

    def cut_end(self, offset: int) -> bool:
        """Remove the entries that start at `offset` or later, for a truncation to `offset`; return whether any were
        removed. OSError.
        """
        kept = tuple(entry for entry in self.entries if entry[1] < offset)
        if len(kept) == len(self.entries):
            return False
        self._replace(kept)
        return True

    def cut_front(self, offset: int) -> bool:
        """Drop the epochs that end at or before `offset`, the new log start. The next epoch then starts there.

        Return whether anything changed. OSError.
        """
        gone = [entry for entry in self.entries if entry[1] <= offset]
        if not gone or gone == [(gone[-1][0], offset)]:
            return False
        self._replace(((gone[-1][0], offset), *self.entries[len(gone) :]))
        return True

    def correct(self, offset: int, limit: int, found: Iterable[tuple[int, int]]) -> bool:
        """Replace the entries in [offset, limit) by `found`, the epochs of the batches there; return whether anything
        changed.

        A later entry for the last epoch in the range is dropped, because the epoch then continues after the range.
        OSError.
        """
        known = (*(entry for entry in self.entries if entry[1] < offset), *found)
        last = known[-1][0] if known else UNDEFINED
        entries = (*known, *(entry for entry in self.entries if entry[1] >= limit and entry[0] != last))
        if entries == self.entries or any(after[0] <= before[0] for before, after in itertools.pairwise(entries)):
            return False  # the epochs of the batches decrease, and entries must not
        self._replace(entries)
        return True

    def clear(self) -> bool:
        """Remove all entries; return whether any were removed. OSError."""
        if not self.entries:
            return False
        self._replace(())
        return True

    def _replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        checkpoints.write_epochs(self._path, entries, durable=True)
        self.entries = entries
