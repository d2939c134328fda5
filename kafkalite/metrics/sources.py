"""Who is asked at a scrape. A part that fails is left out and logged; the others are told all the same."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kafkalite.families import Family, Source
from kafkalite.metrics.groups import Groups
from kafkalite.metrics.limits import Limits
from kafkalite.metrics.network import Network
from kafkalite.metrics.process import Process
from kafkalite.metrics.requests import Requests
from kafkalite.metrics.storage import Storage
from kafkalite.metrics.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.metrics.parts import Parts

logger = logging.getLogger(__name__)


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
        """One after the other, as they are made."""
        began = time.thread_time()
        failed = 0
        for source in (*self._own, *self._parts.sources):
            try:
                yield from source()
            except Exception:
                failed += 1
                logger.exception("some metrics could not be read")
        yield Family(
            "kafkalite_scrape_failed_sources", "gauge", "Parts whose metrics could not be read.", [("", failed)]
        )
        yield Family(
            "kafkalite_scrape_cpu_seconds",
            "gauge",
            "Processor time that this scrape took so far.",
            [("", time.thread_time() - began)],
        )
