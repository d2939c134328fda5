"""Plans a batch query: which pieces of which partitions its tasks read. Without PySpark.

    driver     subscription ─▶ partitions ─▶ starts and ends ─▶ pieces of 32 to 128 MiB, with their topic's id

A piece gives the same records whenever it is read, or fails: its ends are fixed when the query is planned. Its end is
no count of its records: compaction and transactions leave gaps.

Thread rule: functions; each thread has Clients of its own, which live as long as the worker process does.
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
"""Bytes of the log that a task reads, unless maxBytesPerPartition says otherwise: as Spark takes files. Each further
task costs about 40 ms of its own."""
TASK_SIZE_MIN: Final = 32 * 1024 * 1024
"""With fewer bytes than cores could share, tasks become smaller, but not smaller than this."""
TASKS_PER_CORE: Final = 4
"""So many that none is waited for long in the end."""
CLIENTS_MAX: Final = 16
"""Clusters, or settings for one, of which a thread keeps connections; beyond that the oldest are closed."""

_kept = threading.local()
"""A worker process reads many pieces one after the other: connections are worth keeping."""


class ReadTask(NamedTuple):
    """A piece and the id of its topic, None where the brokers have no ids."""

    piece: Piece
    topic_id: bytes | None


def client_of(settings: ClientSettings) -> Client:
    """A new Client of these settings, the caller's own."""
    return Client(settings.bootstrap_servers, **dict(settings.options))


def client_for(settings: ClientSettings) -> Client:
    """This thread's Client of these settings."""
    clients: dict[ClientSettings, Client] = _kept.__dict__.setdefault("clients", {})
    client = clients.pop(settings, None)
    if client is None:
        client = client_of(settings)
        while len(clients) >= CLIENTS_MAX:
            clients.pop(next(iter(clients))).close()
    clients[settings] = client  # the last to be closed
    return client


def plan_tasks(client: Client, options: SourceOptions, narrowing: Narrowing = EVERYTHING) -> list[ReadTask]:
    """What the tasks of a batch query read; nothing where there is nothing. DataLoss, OptionError, KafkaError.

    With a narrowing, what it leaves out is not missed where it is gone.
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
        raise OptionError(impossible[0])  # whatever failOnDataLoss says, as by Spark's own connector
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
    """What each task reads of these ranges."""
    pieces = [piece for key, (start, end) in ranges.items() for piece in split_range(client, key, start, end, options)]
    if options.offsets_max is not None:
        pieces = split_to_offsets(pieces, options.offsets_max)
    if options.min_partitions is not None:
        return split_to_count(pieces, options.min_partitions)
    if options.size_target is None:
        return split_to_count(pieces, task_count(sum(piece.size for piece in pieces), os.cpu_count() or 1))
    return pieces


def task_count(size: int, core_count: int) -> int:
    """How many tasks at least so many bytes are worth: some for each core of this machine, unless they become small."""
    return min(TASKS_PER_CORE * core_count, size // TASK_SIZE_MIN)


def split_range(client: Client, key: TopicPartition, start: int, end: int, options: SourceOptions) -> list[Piece]:
    """A range in pieces of about the wanted size."""
    try:
        return [
            Piece(key, *found) for found in split_by_size(client, key, start, end, options.size_target or TASK_SIZE)
        ]
    except OffsetOutOfRange as error:
        if options.fail_on_data_loss:
            raise DataLoss(f"records of {key} from offset {start} on aged out during planning; {REMEDY}") from error
        return [Piece(key, start, end, 0)]
