"""Native tools that are independent of Kafka, such as assertions, clocks, checksums, buffers and file operations.

Modules, from the bottom up:

    debug, crc · accepting, crc32, crc32c, growing, file_ops, heap, histogram, mapped_faults, native_time
"""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "base")
