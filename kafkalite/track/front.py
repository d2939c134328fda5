"""Create searches for records that contain an id: `search` for one search, Inquiry for several with the same arguments.

Thread rule: an Inquiry is immutable; a search that it starts belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client import Client
from kafkalite.client.cluster import ISOLATIONS
from kafkalite.track.following import follow
from kafkalite.track.path import letters_of, origins_of, steps_of
from kafkalite.track.questions import EVERYWHERE, How, Place, Questions, parse_places
from kafkalite.track.searches import (
    ALL_TIMES,
    DEFAULT_LIMITS,
    HITS_MAX,
    SIZE_MAX,
    TIME_MAX_S,
    Hit,
    Limits,
    Search,
    Window,
)
from kafkalite.track.snapshot import TopicFilter, snapshot
from kafkalite.track.tracking_file import load_tracking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from kafkalite.avro.client import RegistryClient
    from kafkalite.track.path import Step

EVERY_TOPIC: Final = ".*"


class TooLarge(ValueError):
    """A search would read more bytes than allowed. `size` is their approximate number."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"the search would read about {size / 1000000000.0:.1f} GB; the limit is {size_max / 1000000000.0:.1f} GB"
        )
        self.size = size


@dataclass(frozen=True)
class Inquiry:
    """The arguments of a search. Times are in ms since 1970. `registry` is a schema registry's address, for Avro
    places.
    """

    topics: TopicFilter
    questions: Questions
    window: Window = ALL_TIMES
    isolation_level: str = "read_committed"
    registry: str | None = None
    limits: Limits = DEFAULT_LIMITS
    size_max: int = SIZE_MAX

    @classmethod
    def of(
        cls,
        text: str,
        *,
        topics: str = EVERY_TOPIC,
        places: str | Sequence[Place] | None = None,
        tracking: Path | None = None,
        how: How | str = How.IS,
        negated: bool = False,
        since: int | None = None,
        until: int | None = None,
        isolation_level: str = "read_committed",
        registry: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        size_max: int = SIZE_MAX,
    ) -> Inquiry:
        """Build an inquiry from command-line values. Raises ValueError, or StartupError for the tracking file."""
        if isolation_level not in ISOLATIONS:
            raise ValueError(f"isolation_level must be {' or '.join(ISOLATIONS)}, not {isolation_level!r}")
        found = load_tracking(tracking) if tracking is not None else None
        rules = found.rules if found is not None and places is None else ()
        rest = (found.places if found is not None else EVERYWHERE) if places is None else places
        listed = parse_places(rest) if isinstance(rest, str) else tuple(rest)
        questions = Questions(text, listed, How(how), negated=negated, rules=rules)
        if questions.needs_registry and registry is None:
            raise ValueError("avro:PATH and key-avro:PATH require the URL of a schema registry")
        if since is not None and until is not None and until <= since:
            raise ValueError("the end of the time range is before its start")
        window = Window(since, until)
        return cls(TopicFilter(topics), questions, window, isolation_level, registry, limits, size_max)

    def search(self, client: Client) -> Search:
        """Take the snapshot of topics and offsets, and return the search. Raises UnknownTopicOrPartition, TooLarge."""
        isolation = ISOLATIONS[self.isolation_level]
        seen = snapshot(client, self.topics, isolation, self.window.since)
        if seen.size > self.size_max:
            raise TooLarge(seen.size, self.size_max)
        return Search(
            client,
            seen,
            self.questions,
            window=self.window,
            limits=self.limits,
            isolation=isolation,
            open_registry=self._open_registry(),
        )

    def follow(
        self,
        client: Client,
        after: Search,
        *,
        trouble: Callable[[str], None] = print,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Hit]:
        """Yield hits as they arrive, from exactly the end offsets of the search `after`."""
        return follow(
            client,
            self.topics,
            after.snapshot,
            self.questions,
            isolation=ISOLATIONS[self.isolation_level],
            open_registry=self._open_registry(),
            trouble=trouble,
            stopped=stopped,
        )

    def _open_registry(self) -> Callable[[], RegistryClient] | None:
        if self.registry is None:
            return None
        address = self.registry

        def opened() -> RegistryClient:
            from kafkalite.avro.client import RegistryClient

            return RegistryClient(address)

        return opened


def whole_path(client: Client, hits: Sequence[Hit], remark: Callable[[str], object] | None = None) -> list[Step]:
    """Return the hits of a search together with the originals and all letters of the same records, in order.

    A letter is a copy in a retry or dead-letter topic. Calls `remark` with a sentence if not all letters could be
    examined.
    """
    found = [*hits, *origins_of(client, hits)]
    return steps_of([*found, *letters_of(client, found, remark=remark)])


def search(
    client: Client | str | Iterable[str],
    text: str,
    *,
    topics: str = EVERY_TOPIC,
    places: str | Sequence[Place] | None = None,
    tracking: Path | None = None,
    how: How | str = How.IS,
    negated: bool = False,
    since: int | None = None,
    until: int | None = None,
    isolation_level: str = "read_committed",
    registry: str | None = None,
    hits_max: int = HITS_MAX,
    time_max_s: float = TIME_MAX_S,
    size_max: int = SIZE_MAX,
    workers: int = 0,
) -> Search:
    """Return a search that has not started; use it as a context manager. `client` may be bootstrap servers.

    `topics`     whole names, or regular expressions (RE2) for whole names, separated by commas
    `places`     "header:NAME,key,value,json:PATH,avro:PATH" (default: those in the file `tracking`, or else any header,
                 the key and the value)
    `how`        "is", "begins", "contains" or "regex"; `negated` finds records that do not match
    `since`, `until`    range of record timestamps in ms since 1970; records without a timestamp always match

    Raises ValueError for invalid arguments, TooLarge for more than `size_max` bytes, and UnknownTopicOrPartition.
    """
    inquiry = Inquiry.of(
        text,
        topics=topics,
        places=places,
        tracking=tracking,
        how=how,
        negated=negated,
        since=since,
        until=until,
        isolation_level=isolation_level,
        registry=registry,
        limits=Limits(hits_max, time_max_s, workers),
        size_max=size_max,
    )
    if isinstance(client, Client):
        return inquiry.search(client)
    owned = Client(client)
    try:
        found = inquiry.search(owned)
    except BaseException:
        owned.close()
        raise
    found.owned = owned
    return found
