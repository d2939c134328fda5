"""Who is asked at a scrape of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.metrics.groups import Groups
from kafkalite.metrics.limits import Limits
from kafkalite.metrics.network import Network
from kafkalite.metrics.page import told
from kafkalite.metrics.process import Process
from kafkalite.metrics.requests import Requests
from kafkalite.metrics.storage import Storage
from kafkalite.metrics.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.families import Family, Source
    from kafkalite.metrics.parts import Parts


class Sources:
    """All that a broker tells."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._own: tuple[Source, ...] = (
            Process(parts),
            Requests(parts),
            Topics(parts),
            Groups(parts),
            Network(parts),
            Limits(parts),
            Storage(parts),
        )

    def families(self) -> Iterator[Family]:
        """Of all of them, and how the scrape itself went."""
        return told((*self._own, *self._parts.sources))
