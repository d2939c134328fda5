"""Provide metrics and readiness of a schema registry. It is ready while it follows its topic.

Thread rule: any thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafkalite.base.metric_families import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.schema_registry.rest import Application
    from kafkalite.schema_registry.state import RegistryState
    from kafkalite.schema_registry.topic import TopicStore

STALE_S: Final = 60.0
"""A registry that could not read its topic for this time is not ready: other registries may have written."""


class RegistryStatus:
    """The metrics and readiness of one schema registry."""

    def __init__(self, store: TopicStore, application: Application) -> None:
        self._store = store
        self._application = application

    def not_ready(self) -> list[str]:
        """Return the reasons why the registry is not ready; [] if it is ready."""
        store = self._store
        if store.failed.is_set():
            return ["the topic can no longer be followed, so the schemas in memory may be outdated"]
        silent_s = time.monotonic() - store.followed_at
        return [f"cannot read the topic for {silent_s:.0f} s: {store.follow_error}"] if silent_s > STALE_S else []

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the registry."""
        counts, seconds = self._application.counts()
        rows = {key: labels(method=key[0], status=key[1]) for key in counts}
        text = "Requests by method and status."
        yield Family("kafkalite_registry_requests", "counter", text, [(rows[key], n) for key, n in counts.items()])
        text = "Duration of requests."
        yield Family(
            "kafkalite_registry_request_seconds", "counter", text, [(rows[key], s) for key, s in seconds.items()]
        )
        subjects, versions, id_max = self._store.read(_sizes)
        for name, value, what in (
            ("subjects", subjects, "Number of subjects with at least one version."),
            ("schema_versions", versions, "Number of versions of all subjects."),
            ("schema_id_max", id_max, "Highest assigned schema id."),
            ("topic_offset", self._store.position, "Offset up to which the topic has been read."),
            (
                "last_success_seconds_ago",
                time.monotonic() - self._store.followed_at,
                "Time since the last successful read of the topic.",
            ),
            ("up", int(not self.not_ready()), "1 if the registry serves the content of the topic."),
        ):
            yield Family(f"kafkalite_registry_{name}", "gauge", what, [("", value)])
        if error := self._store.follow_error:
            rows_of_error = [(labels(error=error), 1)]
            yield Family(
                "kafkalite_registry_error_info", "gauge", "Always 1; the label describes a problem.", rows_of_error
            )


def _sizes(state: RegistryState) -> tuple[int, int, int]:
    return len(state.subjects), sum(map(len, state.subjects.values())), state.id_max
