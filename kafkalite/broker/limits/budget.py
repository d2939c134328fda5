"""Add up the memory that a broker's settings allow it to use, and compare the sum with the limits of the process.

    memory          anonymous memory at its peak, part by part, without the page cache
    address space   this memory, plus the stacks that threads reserve, the C library's arenas, and the maps of segments

If you add a use of memory that clients can cause, add it to the function `parts`.
"""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.logging import fields
from kafkalite.wire.record.compression import LARGE_COUNT, RETAINED_SIZE

if TYPE_CHECKING:
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger(__name__)

MIB: Final = 1 << 20
PROGRAM_SIZE: Final = 64 * MIB
"""Interpreter, modules, libraries and an ordinary number of topics, in bytes. An idle broker takes 30 MiB."""
THREAD_SIZE: Final = MIB // 4
"""Bytes of its stack that a thread uses."""
STACK_SIZE: Final = 8 * MIB
"""Bytes of stack that a thread reserves if RLIMIT_STACK is unlimited."""
OWN_THREADS: Final = 16
"""Threads that no setting counts: acceptor, housekeeper, flusher, sealer, timers, long requests, metrics."""
UNPACKED_COPIES: Final = 2
"""Kafka 0.7's compressed messages are decompressed one at a time, into a buffer and a copy."""
TELEMETRY_SIZE: Final = 128 * MIB
"""Client metrics (KIP-714) at their limits, in bytes: 3 KB for each of 16,384 instances, 2 KB for each of 20,000 values
and 32 MiB for the one push that is being read."""
ARENAS_SPACE: Final = 2 * 64 * MIB
"""Address space of glibc's arenas (kafkalite.broker.process), in bytes."""


class Part(NamedTuple):
    """A use of memory, and the setting or fact that limits it."""

    name: str
    size: int  # bytes
    bound: str


def parts(config: BrokerConfig, clients: int) -> list[Part]:
    """Return each use of memory. `clients` is the limit in bytes for data that the broker holds for clients."""
    cleaners = config.log_cleaner_threads if config.log_cleaner_enable else 0
    unpackers = config.num_io_threads + cleaners
    batch = config.decompressed_batch_max_bytes
    buffers = config.log_cleaner_dedupe_buffer_size + config.log_cleaner_io_buffer_size if cleaners else 0
    wrappers = UNPACKED_COPIES * batch if any(listener.classic for listener in config.bound_listeners) else 0
    return [
        Part("clients", clients, "data that the broker holds for clients"),
        Part("decompression", LARGE_COUNT * batch + unpackers * RETAINED_SIZE, "decompressed.batch.max.bytes"),
        Part("compaction", buffers + min(cleaners, LARGE_COUNT) * batch, "log.cleaner.dedupe.buffer.size"),
        Part("wrappers_of_0.7", wrappers, "decompressed.batch.max.bytes"),
        Part("client_metrics", TELEMETRY_SIZE, "metrics that clients push"),
        Part("threads", thread_count(config) * THREAD_SIZE, "num.network.threads, num.io.threads"),
        Part("program", PROGRAM_SIZE, "interpreter and libraries"),
    ]


def thread_count(config: BrokerConfig) -> int:
    """Return the number of threads that the settings allow."""
    return config.num_network_threads + config.num_io_threads + config.log_cleaner_threads + OWN_THREADS


def address_space(config: BrokerConfig, memory: int, partition_count: int) -> int:
    """Return the address space in bytes that the broker needs.

    `memory` is the memory in bytes. Each of `partition_count` partitions also maps an active segment.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack = STACK_SIZE if soft == resource.RLIM_INFINITY else soft
    maps = partition_count * config.log_segment_bytes
    return memory + thread_count(config) * stack + ARENAS_SPACE + maps


def report(
    config: BrokerConfig,
    *,
    clients: int,
    partition_count: int,
    memory_limit: int | None,
    address_space_limit: int | None,
) -> int:
    """Log the memory that the settings allow, and return it in bytes. Call this once, at a start.

    Log a warning if the memory limit is below this memory, or if the address space limit is below the address space
    that the broker needs. A limit of None means that there is no limit.
    """
    found = parts(config, clients)
    memory = sum(part.size for part in found)
    sizes = {f"{part.name}_mib": part.size // MIB for part in found}
    logger.info("memory budget of the settings", extra=fields(total_mib=memory // MIB, **sizes))
    if memory_limit is not None and memory_limit < memory:
        logger.warning(
            "the memory limit of the cgroup is below the memory budget of the settings, so the kernel may kill the "
            "broker; raise the limit, or lower %s",
            ", ".join(part.bound for part in found[1:3]),
            extra=fields(limit_mib=memory_limit // MIB, needed_mib=memory // MIB),
        )
    if address_space_limit is not None:
        needed = address_space(config, memory, partition_count)
        if address_space_limit < needed:
            logger.warning(
                "the address space limit (ulimit -v) is below what the settings need: requests may run out of "
                "memory, and each partition maps log.segment.bytes; limit memory with a cgroup instead",
                extra=fields(limit_mib=address_space_limit // MIB, needed_mib=needed // MIB),
            )
    return memory
