"""One partition on the disk: segments and their index, appends and reads, producers' state, compaction."""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "log")
