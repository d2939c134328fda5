"""What knows nothing of Kafka: assertions, checksums, memory that grows, system calls on files, maps that fail."""

from kafkalite._native import with_other_build

with_other_build(__path__, "base")
