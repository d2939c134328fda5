"""Link the files of all logs for a backup of a running broker: all logs at one moment.

    1  the command `kafkalite backup` locks the file `backup.request`, and writes a name into it
    2  the broker's housekeeper sees the request, and links the files of all logs into `.backup/`
    3  the housekeeper takes all locks, links the journal and new segments, notes all ends, and releases the locks
    4  the housekeeper writes these ends to `.backup/NAME.json`, its last file
    5  the command reads the links, empties `backup.request`, and removes `.backup/` and `backup.request`

The *cut* is the set of links together with the noted ends. It equals the files that kill -9 would leave at the moment
of step 3.

Thread rule: everything blocks and runs on the housekeeper's thread. Appends wait while all locks are held.
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
"""Form of the name that a request file contains."""
FORMAT: Final = 2
"""2: the links include the journal's file. 1 (release 0.1.0): they do not, since that release never replaces the
journal."""
DERIVED_SUFFIXES: Final = (*files.COMPANION_SUFFIXES, files.SNAPSHOT_SUFFIX, files.PRODUCERS_SUFFIX)
LISTINGS_MAX: Final = 3
"""Maximum number of listings of a directory whose small files change during the listing."""


class LogsToCut(Protocol):
    """The parts of a data directory that are linked for a backup."""

    @property
    def directory(self) -> str:
        """The path of the data directory."""

    def logs(self) -> Iterable[PartitionLog]:
        """Return all logs; no log is added or removed during the backup."""

    @property
    def metadata(self) -> MetadataStore:
        """The journal and its contents."""


def cut_path(links: str, name: str) -> str:
    """Return the path of the file that completes the cut for the request `name`."""
    return f"{links}/{name}.json"


def look(directory: str, make: Callable[[str, str], None]) -> None:
    """Serve a pending backup request: call `make` with the directory for the links and the path of the file for the
    cut.

    Any process that can write into the data directory can request a backup. The broker refuses a request by removing
    it. If the requesting process has ended, the request and everything made for it are removed. Two requests are never
    confused: each has its own name, which is read again at the end. A client that gives up empties the request before
    it removes anything. So either the client or the broker removes a cut for which no client waits.

    Without a request, a call costs one stat.
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
            return  # the name is not written yet or was removed, or the cut is complete
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
    """Return the name in a request file; empty if the file contains no name now."""
    name = (files.read_bytes(request) or b"").decode("ascii", "replace")
    return name if REQUEST_NAME.fullmatch(name) else ""


def make(logs: LogsToCut, links: str, path: str) -> None:
    """Link all files into the directory `links`; then write the ends of the logs into the file `path`. OSError.

    The client waits for this last file. Derived files, such as indexes and snapshots, are linked before all logs are
    locked. A start on the copy corrects those that reach beyond the noted ends. While a log is locked, all its segments
    have their files and names.

    All ends are noted at one moment, because logs refer to each other: every marker, for example, has its Prepare
    record. The locks are held for about a microsecond per log.
    """
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
    # The copy compacts a log again, from the earlier cleaner offset, if it was compacted since its files were linked.
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
    """The hard links to the files of one log. They keep bytes that retention or compaction removes meanwhile."""

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
        """Link all current files, so that little is left to do while all logs are locked. OSError if a link cannot be
        made."""
        disk.make_directories(self._directory, file_ops.DIRECTORY_MODE)
        try:
            with self.log.core.locked():
                self._link_segments()
                self._link_derived()
        except OSError as error:
            self._failed(error)

    def note_locked(self) -> None:
        """Note the log's start and end, and link new segments; called while all logs are locked."""
        log = self.log
        self._start, self._end = log.log_start_offset, log.log_end_offset
        if log.segments is not self._segments and not self.failed:
            try:
                self._link_segments()
            except OSError as error:
                self._failed(error)
        self._sizes = [segment.size for segment in self._segments]

    def to_json(self) -> dict[str, Any]:
        """Return the log's entry in the JSON file of the backup.

        Its field `segments` is a list of [base offset, size in bytes, whether it is a sealed segment with a file].
        """
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
        """Handle a failed link: omit the log from the backup if it is offline, else raise the error."""
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
        """Link the derived files. If one of them disappears meanwhile, link the others, and list the directory again
        for the file that may have replaced it.
        """
        for _ in range(LISTINGS_MAX):
            try:
                names = disk.list_names(self.log.directory)
            except FileNotFoundError:
                return  # the log never had a file
            whole = True
            for name in names:
                if self._is_derived(name) and not disk.exists(f"{self._directory}/{name}"):
                    try:
                        disk.link(f"{self.log.directory}/{name}", f"{self._directory}/{name}")
                    except FileNotFoundError:
                        whole = False
            if whole:
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
