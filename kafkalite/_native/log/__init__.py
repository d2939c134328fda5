"""Keep a partition's log in native code: segments and indexes, appends and reads, producer state, compaction.

Modules, from the bottom up:

    aborted, followers, index, key_map, record_format · segment, producers · scan, compaction, log_slice,
    segment_read · log_core · log_append, log_traffic, leading · replica
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "log")
