"""What knows nothing of Kafka: assertions, checksums, memory that grows, system calls on files, maps that fail."""

from __future__ import annotations

from kafkalite._native import with_other_build

with_other_build(__path__, "base")
