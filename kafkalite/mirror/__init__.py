"""Copy topics from one cluster to another, exactly once: records are committed together with the mirror's progress.

    mirror.py     Mirror: copies fetched batches unchanged if possible, otherwise record by record
    progress.py   Progress: the offset up to which each source partition is copied, stored in the target
    upstream.py   Upstream: finds topics of the source that are copies themselves
    topics.py     TopicFilter: selects the topics to copy; TargetTopics: creates the target's topics and their settings
    offsets.py    OffsetMap: maps source offsets to target offsets, stored in the target
    sync.py       SyncOptions, Synchroniser: periodically copies topic settings, ACLs, quotas and group offsets
    groups.py     GroupOffsets: copies committed offsets of consumer groups
    rules.py      copies ACLs and quotas; reports users that need a password
    status.py     MirrorStatus: health and metrics of a mirror
    states.py     TopicStates: the topics that cannot be copied at the moment, and the time of their next retry
    reports.py    reports on mirrors from the progress in a target
    embedded.py   EmbeddedMirror: a mirror inside a broker

The package uses both clusters through the columnar client, `kafkalite.client`.
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
