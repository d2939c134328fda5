"""Copies topics from one cluster to another, exactly once: records and progress in the same transactions.

    mirror.py     Mirror: fetched batches to the target, as they are where that is allowed, else their records
    progress.py   Progress: how far each source partition is copied, kept in the target
    upstream.py   Upstream: which of the source's topics are copies themselves
    topics.py     TopicFilter: which topics are copied; TargetTopics: the target's topics for them, their settings
    offsets.py    OffsetMap: which offset of the target each source offset became, kept in the target
    sync.py       SyncOptions, Synchroniser: what is carried beside records, every so often
    groups.py     GroupOffsets: positions of consumer groups
    rules.py      rules (ACLs), quotas, and which users need a password
    status.py     MirrorStatus: what a mirror tells of itself
    states.py     TopicStates: topics that are left behind, and when they are tried again
    reports.py    what the progress in a target says of its mirrors
    embedded.py   EmbeddedMirror: one inside a broker

It is a program of the columnar client: everything goes through `kafkalite.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.mirror.groups import GroupFilter as GroupFilter
    from kafkalite.mirror.mirror import Copied as Copied
    from kafkalite.mirror.mirror import Mirror as Mirror
    from kafkalite.mirror.progress import Progress as Progress
    from kafkalite.mirror.status import MirrorStatus as MirrorStatus
    from kafkalite.mirror.sync import SyncOptions as SyncOptions
    from kafkalite.mirror.topics import CONFIG_EXCLUDE as CONFIG_EXCLUDE
    from kafkalite.mirror.topics import TopicFilter as TopicFilter
    from kafkalite.mirror.upstream import MirrorLoop as MirrorLoop

_WHERE: Final = {
    "CONFIG_EXCLUDE": "kafkalite.mirror.topics",
    "Copied": "kafkalite.mirror.mirror",
    "GroupFilter": "kafkalite.mirror.groups",
    "Mirror": "kafkalite.mirror.mirror",
    "MirrorLoop": "kafkalite.mirror.upstream",
    "MirrorStatus": "kafkalite.mirror.status",
    "Progress": "kafkalite.mirror.progress",
    "SyncOptions": "kafkalite.mirror.sync",
    "TopicFilter": "kafkalite.mirror.topics",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
