"""Which leader epoch began at which offset of a log: what two replicas compare to find where their histories part.

    entries     (epoch, start offset), both rising; the last one is the epoch of the newest batch, or of a leader that
                has written nothing yet
    question    where does epoch E end here?  ▸  where the next one begins, or at the log's end

A batch that does not fit behind what is there wins: entries of its epoch or later ones, or of its offset or later ones,
go. The answers are those of Kafka's LeaderEpochFileCache. The file is leader-epoch-checkpoint. A change is on the
disk when its method returns, except for `begin` and `save(durable=False)`, since a broker that lost the file could not
tell where its log diverges.

Thread rule: changes need the log's lock; `entries` is replaced as a whole and may be read by anybody. Changes block.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kafkalite.broker.log import checkpoints, files

if TYPE_CHECKING:
    from collections.abc import Iterable

UNDEFINED: Final = -1
"""In place of an epoch or offset that nobody knows."""


class LeaderEpochs:
    """The leader epochs of one log."""

    __slots__ = ("_path", "entries")

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/{files.EPOCHS_NAME}"
        self.entries: tuple[tuple[int, int], ...] = ()

    @property
    def latest(self) -> int:
        """The newest epoch, UNDEFINED where there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED

    def load(self, entries: Iterable[tuple[int, int]]) -> None:
        """Takes what a file said, without writing it."""
        self.entries = tuple(entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins at an offset; whether that is new. OSError."""
        entries = self._with(epoch, start_offset)
        if entries is self.entries:
            return False
        self._replace(entries)
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """As assign(), but that nothing is written: `save` does before a batch has the epoch. Until then a start that
        knows nothing of it is right, since epochs without batches are not kept over one."""
        self.entries = self._with(epoch, start_offset)

    def save(self, *, durable: bool = True) -> None:
        """Writes down what there is; unless `durable` the log's next flush has to sync it. OSError."""
        if durable:
            self._replace(self.entries)
        else:
            checkpoints.write_epochs(self._path, self.entries)

    def _with(self, epoch: int, start_offset: int) -> tuple[tuple[int, int], ...]:
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"invalid leader epoch {epoch} with start offset {start_offset}")
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return self.entries
        kept = list(self.entries)
        while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
            kept.pop()
        return (*kept, (epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, the offset behind its last record); (UNDEFINED, UNDEFINED) for an epoch
        above all, or where there is none. One below all ends, in its own name, where the first one begins."""
        entries = self.entries
        if epoch == UNDEFINED or not entries or epoch > entries[-1][0]:
            return UNDEFINED, UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end
        above = next(i for i, entry in enumerate(entries) if entry[0] > epoch)
        return (entries[above - 1][0] if above else epoch), entries[above][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at an offset; UNDEFINED before the first entry."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=UNDEFINED)

    def cut_end(self, offset: int) -> bool:
        """The log ends here now: epochs that began here or later go; whether there were any. OSError."""
        kept = tuple(entry for entry in self.entries if entry[1] < offset)
        if len(kept) == len(self.entries):
            return False
        self._replace(kept)
        return True

    def cut_front(self, offset: int) -> bool:
        """The log begins here now: of the epochs that began before, the last one begins here. OSError."""
        gone = [entry for entry in self.entries if entry[1] <= offset]
        if not gone or gone == [(gone[-1][0], offset)]:
            return False
        self._replace(((gone[-1][0], offset), *self.entries[len(gone) :]))
        return True

    def correct(self, offset: int, limit: int, found: Iterable[tuple[int, int]]) -> bool:
        """The epochs that begin in [offset, limit) are those that the batches there say, and no others; whether that is
        news. One that is said to begin again behind them, since the log once began there, goes on there. OSError."""
        known = (*(entry for entry in self.entries if entry[1] < offset), *found)
        last = known[-1][0] if known else UNDEFINED
        entries = (*known, *(entry for entry in self.entries if entry[1] >= limit and entry[0] != last))
        if entries == self.entries or any(after[0] <= before[0] for before, after in itertools.pairwise(entries)):
            return False  # nothing that can be written down follows from batches whose epochs fall
        self._replace(entries)
        return True

    def clear(self) -> bool:
        """Forgets all of them; whether there were any. OSError."""
        if not self.entries:
            return False
        self._replace(())
        return True

    def _replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        checkpoints.write_epochs(self._path, entries, durable=True)
        self.entries = entries
