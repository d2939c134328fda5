"""Which moments of a recording a power cut is tried at: all are possible, those just behind something likelier.

an answer left · a sync began or ended · a name changed · a broker started, recovers, or stops · any other
Those of the model `series`: several names have gone from one directory since it was synced.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tests.power import trace
from tests.power.disk import Disk

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.power.trace import Record

_NAMES = {trace.RENAME, trace.UNLINK, trace.RMDIR, trace.MKDIR, trace.TRUNCATE, trace.ALLOCATE}
_TAKES_NAMES = {trace.RENAME, trace.UNLINK, trace.RMDIR}
_WEIGHTS = {"answer": 30, "sync": 20, "name": 20, "start": 12, "stop": 5, "any": 13}
NEAR = 4
"""Up to how many records behind one that draws attention."""


class Moments:
    """Draws moments of one recording."""

    def __init__(self, root: str, records: Sequence[Record]) -> None:
        self._root, self._records = root, records
        self._places = [record.place for record in records]
        self._places.append(records[-1].place + 1)
        self._groups: dict[str, list[int]] = {name: [] for name in _WEIGHTS}
        self._groups["any"] = list(range(len(records)))
        phase = "start"
        for number, record in enumerate(records):
            if record.kind == trace.PROCESS:
                phase = "start"
            elif record.kind == trace.MARK and record.a == trace.MARK_READY:
                phase = "serve"
            elif record.kind == trace.MARK and record.a == trace.MARK_STOP:
                phase = "stop"
            if phase != "serve":
                self._groups[phase].append(number)
            if record.kind == trace.SEND:
                self._groups["answer"].append(number)
            elif record.kind in {trace.SYNC_BEGIN, trace.SYNC_END}:
                self._groups["sync"].append(number)
            elif record.kind in _NAMES or (record.kind == trace.OPEN and record.b & 0o100):
                self._groups["name"].append(number)

    def draw(self, draw: random.Random) -> int:
        """A moment: what was recorded before that place has happened."""
        names = [name for name in _WEIGHTS if self._groups[name]]
        name = draw.choices(names, [_WEIGHTS[name] for name in names])[0]
        number = draw.choice(self._groups[name]) + draw.choice((1, 1, draw.randint(1, NEAR)))
        return self._places[min(number, len(self._places) - 1)]

    def draw_series(self, draw: random.Random) -> int:
        """A moment within a series of renames or unlinks in one directory; any where the recording has none.

        One of all such moments, or a directory first, so that a busy one does not hide the others.
        """
        names = sorted(self.series)
        if not names:
            return self.draw(draw)
        if draw.random() < 0.5:
            return draw.choice(self.series[draw.choice(names)])
        return draw.choice([place for name in names for place in self.series[name]])

    @functools.cached_property
    def series(self) -> dict[str, list[int]]:
        """Directory, by its making and its name → the moments at which a series there was under way."""
        return _series_in(self._root, self._records)


def _series_in(root: str, records: Sequence[Record]) -> dict[str, list[int]]:
    """Directory → the places behind each change of names that it is in the middle of a series at."""
    disk = Disk(root)
    found: dict[str, list[int]] = {}
    for record in records:
        disk.play(record)
        if record.kind in _TAKES_NAMES:
            for directory in disk.series():
                if directory.name_changes[-1].place == record.place:
                    found.setdefault(f"{directory.created} {directory.name}", []).append(record.place + 1)
    return found
