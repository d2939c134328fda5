"""Copies topics from one cluster to another, exactly once: records and progress in the same transactions.

    mirror.py     Mirror: fetched batches to the target, as they are where that is allowed, else their records
    progress.py   Progress: how far each source partition is copied, kept in the target
    topics.py     TopicFilter: which topics are copied; TargetTopics: the target's topics for them

It is a program of the columnar client: everything goes through `kafkalite.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.mirror.mirror import Copied as Copied
    from kafkalite.mirror.mirror import Mirror as Mirror
    from kafkalite.mirror.progress import Progress as Progress
    from kafkalite.mirror.topics import TopicFilter as TopicFilter

_WHERE: Final = {
    "Copied": "kafkalite.mirror.mirror",
    "Mirror": "kafkalite.mirror.mirror",
    "Progress": "kafkalite.mirror.progress",
    "TopicFilter": "kafkalite.mirror.topics",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
