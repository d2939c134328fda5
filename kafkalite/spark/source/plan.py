"""Plan the tasks of a batch query: each task reads a piece of a partition. Does not import PySpark.

    driver     subscription ─▶ partitions ─▶ starts and ends ─▶ pieces of at most about 128 MiB, with their topic's id

The first and last offset of a piece are fixed when the query is planned. With failOnDataLoss=true, each
attempt to read the piece returns the same records, or fails.

Thread rule: each thread has its own Clients, which are kept between tasks.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client import ISOLATIONS, Client, split_by_size
from kafkalite.errors import OffsetOutOfRange
from kafkalite.load.selection import Offsets, OptionError, beyond_the_end, discover, partitions_of, resolve
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, ZERO_UUID, TopicPartition
from kafkalite.spark.options import log_without_effect
from kafkalite.spark.source.offsets import REMEDY, DataLoss, Piece, checked_ranges, split_to_count, split_to_offsets
from kafkalite.spark.source.pushdown import Narrowing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.spark.options import ClientSettings, SourceOptions

logger = logging.getLogger(__name__)

EVERYTHING: Final = Narrowing()
TASK_SIZE: Final = 128 * 1024 * 1024
"""Bytes of the log per task, unless maxBytesPerPartition is set: the same as Spark's for files. Each further task costs
about 40 ms."""
TASK_SIZE_MIN: Final = 32 * 1024 * 1024
"""Minimum bytes per task when tasks become smaller so that all cores share the work."""
TASKS_PER_CORE: Final = 4
"""Enough tasks per core that no core waits long at the end."""
CLIENTS_MAX: Final = 16
"""Clients that a thread keeps, one per settings; beyond that the oldest are closed."""

_kept = threading.local()
"""Clients of this thread: a worker process reads many pieces, so connections are reused."""


class ReadTask(NamedTuple):
    """A piece and its topic's id. The id is None if the brokers have no topic ids."""

    piece: Piece
    topic_id: bytes | None


def client_of(settings: ClientSettings) -> Client:
    """Return a new Client with these settings. The caller closes it."""
    return Client(settings.bootstrap_servers, retry_first_timeout=True, **dict(settings.options))


def client_for(settings: ClientSettings) -> Client:
    """Return this thread's Client for these settings."""
    clients: dict[ClientSettings, Client] = _kept.__dict__.setdefault("clients", {})
    client = clients.pop(settings, None)
    if client is None:
        client = client_of(settings)
        while len(clients) >= CLIENTS_MAX:
            clients.pop(next(iter(clients))).close()
    clients[settings] = client  # now the most recently used
    return client


def plan_tasks(client: Client, options: SourceOptions, narrowing: Narrowing = EVERYTHING) -> list[ReadTask]:
    """Return the tasks of a batch query; none if there is nothing to read. Raises DataLoss, OptionError and KafkaError.

    Missing records outside of `narrowing` are no loss.
    """
    log_without_effect(options.without_effect)
    topics = discover(client, options.subscription)
    keys = partitions_of(options.subscription, topics)
    look_up = Offsets(client, ISOLATIONS[options.client.isolation_level])
    earliest = look_up(dict.fromkeys(keys, OFFSET_EARLIEST))
    starts = resolve(options.starting, keys, look_up, missing=options.timestamp_strategy)
    ends = resolve(options.ending, keys, look_up, missing="latest")
    impossible = beyond_the_end(options.starting, starts, ends)
    if impossible:
        raise OptionError(impossible[0])  # independent of failOnDataLoss, as in Spark's own connector
    starts, ends = narrowing.apply(starts, ends, look_up)
    latest = look_up(dict.fromkeys(keys, OFFSET_LATEST))
    ranges, losses = checked_ranges(starts, ends, earliest, latest, fail_on_data_loss=options.fail_on_data_loss)
    for loss in losses:
        logger.warning("%s; reading the rest because failOnDataLoss is false", loss)
    pieces = split_ranges(client, ranges, options)
    ids = {name: None if row.topic_id == ZERO_UUID else row.topic_id for name, row in topics.items()}
    return [ReadTask(piece, ids[piece.key.topic]) for piece in pieces]


def split_ranges(
    client: Client, ranges: Mapping[TopicPartition, tuple[int, int]], options: SourceOptions
) -> list[Piece]:
    """Divide ranges into pieces, one per task."""
    pieces = [piece for key, (start, end) in ranges.items() for piece in split_range(client, key, start, end, options)]
    if options.offsets_max is not None:
        pieces = split_to_offsets(pieces, options.offsets_max)
    if options.min_partitions is not None:
        return split_to_count(pieces, options.min_partitions)
    if options.size_target is None:
        return split_to_count(pieces, task_count(sum(piece.size for piece in pieces), os.cpu_count() or 1))
    return pieces


def task_count(size: int, core_count: int) -> int:
    """Return the minimum number of tasks for this many bytes: some per core of this machine, or fewer to avoid small
    tasks.
    """
    return min(TASKS_PER_CORE * core_count, size // TASK_SIZE_MIN)


def split_range(client: Client, key: TopicPartition, start: int, end: int, options: SourceOptions) -> list[Piece]:
    """Divide a range into pieces of about the target size."""
    try:
        return [
            Piece(key, *found) for found in split_by_size(client, key, start, end, options.size_target or TASK_SIZE)
        ]
    except OffsetOutOfRange as error:
        if options.fail_on_data_loss:
            raise DataLoss(f"records of {key} from offset {start} on aged out during planning; {REMEDY}") from error
        return [Piece(key, start, end, 0)]
