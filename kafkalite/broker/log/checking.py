"""Check the files of a stopped broker for damage, for `kafkalite log check`; change nothing.

    data directory    meta.properties, journal, checkpoints ▸ each partition
    partition         names and order of segments ▸ every batch, its CRC and offsets ▸ saved indexes, aborted
                      transactions, snapshots, quarantine, leader epochs, partition.metadata

A `Finding` describes a problem and its remedy, which kafkalite.broker.log.repair applies.

Everything here blocks, and a check reads whole logs. Meanwhile, no broker may use the directory.
"""

from __future__ import annotations

import os
import re
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final

from kafkalite._native.base.crc32c import crc32c
from kafkalite._native.log.index import SegmentIndex
from kafkalite._native.log.scan import SegmentScan
from kafkalite._native.log.segment import FileCache, Segment
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.log import checkpoints, disk, files, index_file, journal, quarantine_file, recovery, snapshots
from kafkalite.broker.log import transaction_index as txnindex
from kafkalite.broker.log.directory import partition_directories
from kafkalite.broker.log.formats import FORMATS
from kafkalite.errors import ConfigError, StartupError
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite._native.log.record_format import RecordFormat

OPEN_SEGMENTS_MAX: Final = 16
MAP_SIZE_MIN: Final = 4096
OFFSET_MAX: Final = recovery.OFFSET_MAX
SET_ASIDE: Final = re.compile(r"(?P<segment>\d{20}\.\w+)\.damaged-(?P<first>\d+)-(?P<next>\d+)")
"""Name of a file that holds bytes which a repair removed from a segment; the name contains their range of offsets."""


class Remedy(Enum):
    """How `kafkalite log repair` fixes a finding; the value is shown to the user."""

    NONE = "cannot be repaired; restore it from a copy"
    REBUILD = "rebuilt from the log"
    CUT = "truncated, as a start would do"
    TAKE_OUT = "removed and kept in another file; its offsets are lost"
    REWRITE = "rewritten from the journal"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a file, and its remedy. `position` and `end` are byte positions in a segment; `first` and
    `next_offset` are offsets. -1: unknown or not applicable.
    """

    path: str
    what: str
    remedy: Remedy
    position: int = -1
    end: int = -1
    first: int = -1
    next_offset: int = -1


@dataclass(slots=True)
class Partition:
    """A partition directory, with what the data directory's files say about it. The check sets the other fields."""

    directory: str
    topic: str
    number: int
    topic_id: bytes | None = None  # the journal's
    compacted: bool = True  # if unknown, True: missing offsets are not reported then
    flushed_offset: int = 0  # from the last checkpoint
    log_start: int = 0
    format: RecordFormat | None = None
    segment_count: int = 0
    size: int = 0
    end_offset: int = 0
    notes: list[str] = field(default_factory=list)


# --- a data directory -------------------------------------------------------------------------------------------------


def partitions_of(directory: str) -> list[Partition]:
    """Return the partitions in a data directory, or the single partition of a partition directory, without checking
    them."""
    own = files.parse_directory_name(os.path.basename(os.path.abspath(directory)))
    is_root = any(disk.exists(f"{directory}/{name}") for name in (files.JOURNAL_NAME, files.META_PROPERTIES_NAME))
    if own is not None and not is_root:
        found = {own: directory}
        root = os.path.dirname(os.path.abspath(directory))
    else:
        found, _ = partition_directories(directory)
        root = directory
    state = _journal_state(root)
    points = checkpoints.read_offsets(f"{root}/{files.RECOVERY_POINTS_NAME}") or {}
    starts = checkpoints.read_offsets(f"{root}/{files.LOG_STARTS_NAME}") or {}
    partitions = []
    for (topic, number), path in sorted(found.items()):
        known = state.topics.get(topic) if state is not None else None
        partition = Partition(path, topic, number)
        partition.flushed_offset = points.get((topic, number), 0)
        partition.log_start = starts.get((topic, number), 0)
        if known is not None and number < len(known.epoch_bases):
            partition.topic_id = known.topic_id
            partition.compacted = _is_compacted(known.overrides, topic)
        partitions.append(partition)
    return partitions


def _journal_state(root: str) -> journal.MetadataState | None:
    try:
        data = files.read_bytes(f"{root}/{files.JOURNAL_NAME}")
        return None if data is None else journal.replay(files.JOURNAL_NAME, data)[0]
    except (OSError, StartupError):
        return None


def _is_compacted(overrides: dict[str, str], topic: str) -> bool:
    try:
        return TopicConfig.resolve(BrokerConfig.load(None, {}), overrides, topic).compacted
    except ConfigError:
        return True


def check_root(directory: str) -> Iterator[Finding]:
    """Yield the problems with the files in a data directory's root."""
    path = f"{directory}/{files.JOURNAL_NAME}"
    try:
        data = files.read_bytes(path)
        if data is not None:
            journal.replay(path, data)
    except (OSError, StartupError) as error:
        yield Finding(path, str(error).removeprefix(f"{path} "), Remedy.NONE)
    path = f"{directory}/{files.META_PROPERTIES_NAME}"
    try:
        values = checkpoints.read_properties(path)
        if values is not None and not {"version", "cluster.id"} <= set(values):
            yield Finding(path, "version or cluster.id is missing", Remedy.NONE)
    except OSError as error:
        yield Finding(path, f"cannot be read: {error.strerror}", Remedy.NONE)
    for name in (files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME, files.CLEANER_OFFSETS_NAME):
        path = f"{directory}/{name}"
        if disk.exists(path) and checkpoints.read_offsets(path) is None:
            yield Finding(path, "the checkpoint is damaged", Remedy.REBUILD)


# --- a partition ------------------------------------------------------------------------------------------------------


def check_partition(partition: Partition) -> Iterator[Finding]:
    """Yield the problems in a partition directory.

    Also set the fields of `partition` for the format, the sizes, the end offset and the notes.
    """
    try:
        names = sorted(disk.list_names(partition.directory))
    except OSError as error:
        yield Finding(partition.directory, f"cannot be read: {error.strerror}", Remedy.NONE)
        return
    for name in names:
        if name.endswith((files.CLEANED_SUFFIX, files.SWAP_SUFFIX)):
            partition.notes.append(f"{name}: a compaction was interrupted; the next start finishes it")
    suffixes = [suffix for suffix in _formats() if any(_stem(name, suffix) is not None for name in names)]
    if len(suffixes) > 1:
        yield Finding(partition.directory, "it holds segments of two formats", Remedy.NONE)
        return
    if suffixes:
        partition.format = _formats()[suffixes[0]]
        yield from _check_segments(partition, names)
    yield from _check_snapshots(partition, names)
    yield from _check_metadata(partition)


def _formats() -> dict[str, RecordFormat]:
    return {record_format.suffix: record_format for record_format in FORMATS.values()}


def _stem(name: str, suffix: str) -> int | None:
    """Return the base offset in the name of a file with this suffix; None for any other name."""
    stem, _, rest = name.partition(".")
    return int(stem) if "." + rest == suffix and files.SEGMENT_STEM.fullmatch(stem) else None


def _check_segments(partition: Partition, names: list[str]) -> Iterator[Finding]:
    assert partition.format is not None, "there are segments"
    suffix = partition.format.suffix
    bases = [base for name in names if (base := _stem(name, suffix)) is not None]
    aside = _set_aside(names)
    cache = FileCache(OPEN_SEGMENTS_MAX)
    partition.segment_count = len(bases)
    end = bases[0]
    for i, base in enumerate(bases):
        next_base = bases[i + 1] if i + 1 < len(bases) else OFFSET_MAX
        path = f"{partition.directory}/{files.stem(base)}{suffix}"
        if end > base:
            yield Finding(
                path, f"it begins at offset {base}, but the segment before it ends at offset {end}", Remedy.NONE
            )
        elif end < base and _matters(partition, end, base, aside):
            what = f"offsets {end}-{base - 1} are missing before this segment"
            yield Finding(path, what, Remedy.NONE, first=end, next_offset=base)
        walk = Walk(partition, base, next_base, cache)
        yield from walk.findings()
        end = max(end, walk.end_offset) if walk.readable else base if next_base == OFFSET_MAX else next_base
    partition.end_offset = end
    if end < partition.flushed_offset and _matters(partition, end, partition.flushed_offset, aside):
        what = f"the log ends at offset {end}, but was flushed to the disk up to offset {partition.flushed_offset}"
        yield Finding(partition.directory, what, Remedy.NONE, first=end, next_offset=partition.flushed_offset)


def _matters(partition: Partition, first: int, next_offset: int, aside: list[tuple[int, int]]) -> bool:
    """Return whether a gap in the offsets is damage: neither compaction nor a repair removed the offsets.

    `aside` are the offsets in the names of the files in which repairs kept the removed bytes.
    """
    if partition.format is not None and partition.format.positional:
        return True
    return not partition.compacted and not any(start <= first and next_offset <= stop for start, stop in aside)


def _set_aside(names: list[str]) -> list[tuple[int, int]]:
    found = [(int(match["first"]), int(match["next"])) for name in names if (match := SET_ASIDE.fullmatch(name))]
    merged: list[tuple[int, int]] = []
    for first, next_offset in sorted(found):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], next_offset))
        else:
            merged.append((first, next_offset))
    return merged


class Walk:
    """Checks one segment, from its first byte to its last, and the small files of the segment."""

    def __init__(self, partition: Partition, base: int, next_offset: int, cache: FileCache) -> None:
        assert partition.format is not None, "there are segments"
        self.partition = partition
        self.behind = next_offset
        self.end_offset = base
        self.readable = True
        self.base = base
        self.path = f"{partition.directory}/{files.stem(base)}{partition.format.suffix}"
        self._cache = cache
        self.damage: list[tuple[int, int, int, int]] = []

    def findings(self) -> Iterator[Finding]:
        """Yield the problems with the segment, its index, its aborted transactions and its quarantine."""
        assert self.partition.format is not None, "there are segments"
        try:
            size = disk.stat(self.path).st_size
            self.partition.size += size
            segment = Segment(
                self._cache,
                self.partition.format,
                self.partition.directory,
                self.base,
                map_reserve=max(size, MAP_SIZE_MIN),
                size=size,
            )
            scan = SegmentScan(segment, next_offset=self.base, index=SegmentIndex(), index_interval=0)
            found = list(self._walk(scan))
            segment.close()
        except OSError as error:
            self.readable = False
            yield Finding(self.path, f"cannot be read: {error.strerror}", Remedy.NONE)
            return
        self.end_offset = scan.next_offset if scan.next_offset >= 0 else self.base
        yield from found
        yield from self._check_index(segment, scan)
        yield from self._check_aborted()
        yield from self._check_quarantine()

    def _walk(self, scan: SegmentScan) -> Iterator[Finding]:
        """Yield a finding for each range of bytes without a readable batch, except for zeros at the segment's end.

        Afterwards, scan.next_offset is the segment's end offset.
        """
        segment, size = scan.segment, scan.segment.size
        last = self.behind == OFFSET_MAX
        while not scan.run(size, verify=True, offset_limit=self.behind):
            offset, position = scan.first_bad_offset(), scan.position
            if (last or offset == self.behind) and recovery.ends_in_zeros(segment, position):
                return
            following = scan.resync(size, offset_limit=self.behind)
            end, after = following or (size, offset if last else self.behind)
            if following is None and last:
                after = max(offset, self.partition.flushed_offset)
                if after == offset:
                    what = f"{end - position} bytes from offset {offset} are not a batch, and no checkpoint covers them"
                    yield Finding(self.path, what, Remedy.CUT, position, end, offset, offset)
                    return
            self.damage.append((position, end, offset, after))
            positional = segment.format.positional
            what = (
                f"{end - position} bytes at position {position} are damaged; offsets {offset}-{after - 1} cannot be "
                "read"
            )
            remedy = Remedy.NONE if positional else Remedy.TAKE_OUT
            yield Finding(self.path, what, remedy, position, end, offset, after)
            scan.skip_to(end, after)
            if following is None:
                return

    def _check_index(self, segment: Segment, scan: SegmentScan) -> Iterator[Finding]:
        path = index_file.path_of(segment)
        if not disk.exists(path) or self.damage:
            return
        summary = index_file.read_summary(path)
        entries = None if summary is None else index_file.read_entries(path, summary, mapped=False)
        if summary is None or entries is None:
            yield Finding(path, "the saved index is damaged", Remedy.REBUILD)
            return
        assert scan.index is not None, "the scan was made with an index"
        topic_id = self.partition.topic_id or summary.topic_id
        known = dict(zip(*scan.index.columns()[:2].tolist(), strict=True))
        wrong = any(known.get(offset) != at for offset, at in zip(*entries.columns()[:2].tolist(), strict=True))
        if wrong or not index_file.describes(summary, segment, topic_id, self.partition.number):
            yield Finding(path, "the saved index does not match its segment", Remedy.REBUILD)

    def _check_aborted(self) -> Iterator[Finding]:
        path = txnindex.path_of(self.partition.directory, self.base)
        if not disk.exists(path):
            return
        try:
            sound = txnindex.decode(files.read_bytes(path) or b"", self.base, self.behind) is not None
        except OSError:
            sound = False
        if not sound:
            yield Finding(path, "the list of aborted transactions is damaged", Remedy.REBUILD)

    def _check_quarantine(self) -> Iterator[Finding]:
        path = quarantine_file.path_of(self.partition.directory, self.base)
        if not disk.exists(path):
            return
        rows = quarantine_file.read(path)
        if not rows:
            yield Finding(path, "the list of damaged ranges is itself damaged", Remedy.REBUILD)
        elif not self.damage and all(position < end for (position, end, _, _), _ in rows):
            self.partition.notes.append(f"{os.path.basename(path)}: the quarantined ranges are intact again")


def _check_snapshots(partition: Partition, names: list[str]) -> Iterator[Finding]:
    for name in names:
        path = f"{partition.directory}/{name}"
        if _stem(name, files.SNAPSHOT_SUFFIX) is None and _stem(name, files.PRODUCERS_SUFFIX) is None:
            continue
        try:
            data = files.read_bytes(path) or b""
        except OSError:
            data = b""
        if name.endswith(files.SNAPSHOT_SUFFIX):
            sound = snapshots.decode(data) is not None
        else:
            sound = data[:9] == b"%08x " % crc32c(data[9:-1])
        if not sound:
            yield Finding(path, "the producer snapshot is damaged", Remedy.REBUILD)


def topic_id_of(directory: str) -> bytes | None:
    """Return the topic id in a partition's directory; None if partition.metadata is missing or damaged."""
    try:
        return checkpoints.read_partition_topic_id(directory)
    except checkpoints.MetadataDamaged:
        return None


def _check_metadata(partition: Partition) -> Iterator[Finding]:
    path = f"{partition.directory}/{files.EPOCHS_NAME}"
    if disk.exists(path):
        entries = checkpoints.find_epochs(path)
        if entries is None or (partition.size and not entries):  # only a log without records has none
            yield Finding(path, "the leader epoch checkpoint is damaged", Remedy.REBUILD)
    if partition.topic_id is None:
        return
    path = f"{partition.directory}/{files.PARTITION_METADATA_NAME}"
    if topic_id_of(partition.directory) != partition.topic_id:
        what = "the topic id is missing, damaged, or differs from the journal's"
        yield Finding(path, what, Remedy.REWRITE)
