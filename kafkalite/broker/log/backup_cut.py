"""A cut through all logs at one moment, for a backup while the broker runs.

    kafkalite backup                           the housekeeper
    holds `backup.request` with a name  ─▶     sees it ▸ links every file of every log, and the journal, into `.backup/`
                                               ▸ takes all locks: ends of all logs and of the journal, at one moment
    reads the links at its leisure      ◀─     `.backup/NAME.json`, the last file
    empties the request, removes both, lets go

One moment, since logs tell of each other: an offset that is committed has its record, a marker its Prepare, a
transaction that is complete all its markers. So the copy is what kill -9 at that moment would have left, and a start
treats it as such.

A link keeps a file that retention, compaction or the deletion of a topic takes away meanwhile, and the journal's file,
which is replaced when it is shortened. Under a log's lock all
its segments have their files, by the names that they know; the manager's lock, held all along, keeps topics from coming
and going. What is derived (indexes, snapshots) is linked before the moment, or cut back by the start.

Every request has a name of its own: the broker may look while the one before is being removed, and make a cut that
nobody waits for, which would be an old one for whoever comes next. So whoever lets go takes the name back before
anything is removed, and the broker looks for it once more when it is done: one of the two removes such a cut.

Whoever may write into the data directory may ask: there is no other way to. A request that nobody holds any more, its
process having ended, is removed with what was made for it. The broker refuses by removing the request.

Blocks; the housekeeper's thread alone. Appends wait while all locks are taken: a microsecond for each log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite._native.base import file_ops
from kafkalite.base.logging import fields
from kafkalite.broker.log import checkpoints, disk, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite._native.log.segment import Segment
    from kafkalite.broker.log.metadata_store import MetadataStore
    from kafkalite.broker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

REQUEST_NAME: Final = re.compile(r"[0-9a-f]{32}")
"""What a request says."""
FORMAT: Final = 2
"""2: the journal's file is among the links. 1, of 0.1.0: it is not, and is never replaced while its broker runs."""
DERIVED_SUFFIXES: Final = (*files.COMPANION_SUFFIXES, files.SNAPSHOT_SUFFIX, files.PRODUCERS_SUFFIX)
LISTINGS_MAX: Final = 3
"""How often a directory is listed again whose small files changed meanwhile."""


class LogsToCut(Protocol):
    """What a cut needs of the data directory."""

    @property
    def directory(self) -> str:
        """Its path."""

    def logs(self) -> Iterable[PartitionLog]:
        """All logs. Nobody adds or takes one away meanwhile."""

    @property
    def metadata(self) -> MetadataStore:
        """What the journal has."""


def cut_path(links: str, name: str) -> str:
    """The file that ends the cut for the request of this name."""
    return f"{links}/{name}.json"


def look(directory: str, make: Callable[[str, str], None]) -> None:
    """Serves a request if there is one: `make` is given the directory for the links and the path of the cut itself.

    One stat where there is none.
    """
    request = f"{directory}/{files.BACKUP_REQUEST_NAME}"
    if not disk.exists(request):
        return
    links = f"{directory}/{files.BACKUP_LINKS_NAME}"
    name = ""
    try:
        if not disk.is_held(request):
            files.remove_tree(links)
            file_ops.unlink(request, missing_ok=True)
            return
        name = _name_in(request)
        if not name or disk.exists(cut_path(links, name)):
            return  # its name is yet to be written or was taken back, or all is done
        files.remove_tree(links)
        make(links, cut_path(links, name))
        if _name_in(request) != name:
            files.remove_tree(links)
    except OSError as error:
        with contextlib.suppress(OSError):
            files.remove_tree(links)
        with contextlib.suppress(OSError):
            if not name or _name_in(request) == name:
                logger.error("could not make a backup", extra=fields(reason=str(error)))  # noqa: TRY400  # the reason suffices
                file_ops.unlink(request, missing_ok=True)


def _name_in(request: str) -> str:
    """What a request is called; empty: it has no name now."""
    name = (files.read_bytes(request) or b"").decode("ascii", "replace")
    return name if REQUEST_NAME.fullmatch(name) else ""


def make(logs: LogsToCut, links: str, path: str) -> None:
    """Makes the links in a directory and writes the ends into the file that is waited for. OSError."""
    disk.make_directories(links, file_ops.DIRECTORY_MODE)
    cleaner_path = f"{logs.directory}/{files.CLEANER_OFFSETS_NAME}"
    cleaned_before = checkpoints.read_offsets(cleaner_path) or {}
    parts = [LinkedLog(log, links) for log in logs.logs()]
    for part in parts:
        part.link()
    with contextlib.ExitStack() as locks:
        for part in parts:
            locks.enter_context(part.log.core.locked())
        journal_size = logs.metadata.link(f"{links}/{files.JOURNAL_NAME}")
        for part in parts:
            part.note_locked()
    # A log that was compacted since its files were linked is compacted once more, from its start.
    cleaned = checkpoints.read_offsets(cleaner_path) or {}
    found = {
        "format": FORMAT,
        "journal_size": journal_size,
        "cleaned": [[*key, cleaned_before.get(key, 0)] for key in cleaned],
        "logs": [part.to_json() for part in parts],
    }
    files.write_atomically(path, json.dumps(found).encode(), durable=False)
    logger.info("backup started", extra=fields(partitions=len(parts), journal_size=journal_size))


class LinkedLog:
    """One log of the cut."""

    __slots__ = ("_directory", "_end", "_linked", "_segments", "_sizes", "_start", "failed", "log")

    def __init__(self, log: PartitionLog, links: str) -> None:
        self.log = log
        self.failed = ""
        self._directory = f"{links}/{files.directory_name(log.topic, log.partition)}"
        self._linked: dict[int, Segment] = {}  # by base offset
        self._segments: tuple[Segment, ...] = ()
        self._sizes: list[int] = []
        self._start = self._end = 0

    def link(self) -> None:
        """Links what there is now, so that little is left to do at the moment itself. OSError for the target's."""
        disk.make_directories(self._directory, file_ops.DIRECTORY_MODE)
        try:
            with self.log.core.locked():
                self._link_segments()
                self._link_derived()
        except OSError as error:
            self._failed(error)

    def note_locked(self) -> None:
        """At the moment, under all locks."""
        log = self.log
        self._start, self._end = log.log_start_offset, log.log_end_offset
        if log.segments is not self._segments and not self.failed:
            try:
                self._link_segments()
            except OSError as error:
                self._failed(error)
        self._sizes = [segment.size for segment in self._segments]

    def to_json(self) -> dict[str, Any]:
        """What the backup has to know. `segments`: [base offset, bytes, whether there is a file] each."""
        return {
            "topic": self.log.topic,
            "partition": self.log.partition,
            "failed": self.failed,
            "start": self._start,
            "end": self._end,
            "first": self._segments[0].base_offset if self._segments else self._end,
            "suffix": self.log.format.suffix,
            "segments": [
                [segment.base_offset, size, segment.has_file and segment.sealed]
                for segment, size in zip(self._segments, self._sizes, strict=True)
                if segment.base_offset in self._linked
            ],
        }

    def _failed(self, error: OSError) -> None:
        """A log whose own files fail is left out; where links cannot be made there is no backup."""
        if not self.log.offline:
            raise error
        self.failed = str(error)
        self._segments, self._sizes = (), []

    def _link_segments(self) -> None:
        log = self.log
        segments = log.segments
        wanted = {segment.base_offset: segment for segment in segments if segment.has_file}
        for base in [base for base, segment in self._linked.items() if wanted.get(base) is not segment]:
            del self._linked[base]
            file_ops.unlink(self._path(base, log.format.suffix), missing_ok=True)
            for suffix in files.COMPANION_SUFFIXES:
                file_ops.unlink(self._path(base, suffix), missing_ok=True)
        for base, segment in wanted.items():
            if base not in self._linked:
                disk.link(segment.path, self._path(base, log.format.suffix))
                self._linked[base] = segment
        self._segments = segments

    def _path(self, base: int, suffix: str) -> str:
        return f"{self._directory}/{files.stem(base)}{suffix}"

    def _link_derived(self) -> None:
        """Small files, as a set: one that goes while it is linked means that another one has come."""
        for _ in range(LISTINGS_MAX):
            try:
                names = disk.list_names(self.log.directory)
            except FileNotFoundError:
                return  # nothing was ever appended
            try:
                for name in names:
                    if self._is_derived(name) and not disk.exists(f"{self._directory}/{name}"):
                        disk.link(f"{self.log.directory}/{name}", f"{self._directory}/{name}")
            except FileNotFoundError:
                continue
            return

    def _is_derived(self, name: str) -> bool:
        if name in (files.EPOCHS_NAME, files.PARTITION_METADATA_NAME):
            return True
        stem, suffix = os.path.splitext(name)
        if files.SEGMENT_STEM.fullmatch(stem) is None or suffix not in DERIVED_SUFFIXES:
            return False
        if suffix in (files.SNAPSHOT_SUFFIX, files.PRODUCERS_SUFFIX):
            return True
        return int(stem) in self._linked
