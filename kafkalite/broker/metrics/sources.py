"""Collect the metrics of all sources of a broker, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.broker.metrics.groups import Groups
from kafkalite.broker.metrics.limits import Limits
from kafkalite.broker.metrics.network import Network
from kafkalite.broker.metrics.requests import Requests
from kafkalite.broker.metrics.storage import Storage
from kafkalite.broker.metrics.topics import Topics
from kafkalite.metrics.page import told
from kafkalite.metrics.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.base.metric_families import Family, Source
    from kafkalite.broker.metrics.parts import Parts


class Sources:
    """All sources of a broker."""

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
        """Yield the metric families of all sources, and metrics about the scrape itself. A source that fails is left
        out.
        """
        return told((*self._own, *self._parts.sources))
