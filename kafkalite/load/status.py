"""Provide metrics and readiness of a continuous load: its published files, its lag and its errors.

Thread rule: the load's thread updates the status; any thread may call `families` and `not_ready`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.base.metric_families import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS_MISSED: Final = 3
STALE_S_MIN: Final = 60.0
"""A load is not ready after this time and ROUNDS_MISSED rounds without a success."""


class LoadStatus:
    """The status of a load. `every_s` is the interval between rounds in seconds; None for a load that runs once."""

    def __init__(self, every_s: float | None) -> None:
        self._stale_s = max(STALE_S_MIN, ROUNDS_MISSED * (every_s or 0.0))
        self._succeeded = time.monotonic()
        self._begun = False
        self._records = self._size = self._files = self._commits = self._rounds = 0
        self._lag = 0
        self._error = ""

    def published(self, records: int, size: int, files: int) -> None:
        """Count a commit with these records, bytes and files."""
        self._records += records
        self._size += size
        self._files += files
        self._commits += 1
        self._succeeded = time.monotonic()

    def finished(self, lag: int) -> None:
        """Record the end of a round, with the remaining lag in offsets."""
        self._rounds += 1
        self._begun, self._lag, self._error = True, lag, ""
        self._succeeded = time.monotonic()

    def failed(self, error: object) -> None:
        """Record that a round failed with this error."""
        self._error = str(error)

    def not_ready(self) -> list[str]:
        """Return the reasons why the load is not ready; [] if it is ready."""
        silent_s = time.monotonic() - self._succeeded
        if not self._begun and not self._commits:
            return [f"nothing has been loaded yet{f': {self._error}' if self._error else ''}"]
        return (
            [f"nothing has been loaded for {silent_s:.0f} s: {self._error or 'busy'}"]
            if silent_s > self._stale_s
            else []
        )

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the load."""
        for name, value, text in (
            ("records", self._records, "Records published in files."),
            ("bytes", self._size, "Bytes of files published."),
            ("files", self._files, "Files published."),
            ("commits", self._commits, "Commits, each of which publishes files."),
            ("rounds", self._rounds, "Rounds that loaded all records available."),
        ):
            yield Family(f"kafkalite_load_{name}", "counter", text, [("", value)])
        for name, gauge, text in (
            ("lag", self._lag, "Offsets that arrived during the last round."),
            (
                "last_success_seconds_ago",
                time.monotonic() - self._succeeded,
                "Seconds since the load last published files or had none to publish.",
            ),
            ("up", int(not self.not_ready()), "1 while the load makes progress, otherwise 0."),
        ):
            yield Family(f"kafkalite_load_{name}", "gauge", text, [("", gauge)])
        if self._error:
            yield Family(
                "kafkalite_load_error_info",
                "gauge",
                "Always 1; the label has the current error.",
                [(labels(error=self._error), 1)],
            )
