"""Fetch the partitions that this consumer owns on one broker, and put the messages into the streams' queues.

    1  send one MULTIFETCH for all partitions
    2  put the messages of each partition, as a chunk, into the queue of its stream; wait while the queue is full
    3  if no partition had messages, wait for fetcher.backoff.ms

    offset out of range               continue at the offset that autooffset.reset selects, and store this offset (if it
                                      selects none: as for other errors)
    message larger than fetch.size    fetch the message alone, with a size that doubles up to fetch.size.max (in 0.7's
                                      design document, but not in its code)
    other error of a partition        pass it to the stream, and do not read the partition until the next rebalance
    lost connection                   reconnect after the backoff

Thread rule: each fetcher has its own thread. Other threads may call only `start`, `interrupt` and `join`.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 5).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields
from kafkalite.classic import wire
from kafkalite.classic.config import LARGEST, SMALLEST
from kafkalite.classic.errors import (
    ClassicError,
    ConnectionFailed,
    InvalidConfig,
    InvalidMessageSize,
    OffsetOutOfRange,
    UnknownError,
)
from kafkalite.classic.messages import whole_size
from kafkalite.classic.simple_consumer import SimpleConsumer
from kafkalite.classic.stream import FetchedChunk
from kafkalite.classic.wire import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.classic.config import ConsumerConfig
    from kafkalite.classic.stream import ConsumedPosition
    from kafkalite.zookeeper.nodes import BrokerNode

logger = logging.getLogger(__name__)

RESET_TIMES: Final = {SMALLEST: wire.EARLIEST, LARGEST: wire.LATEST}


def reset_offset(consumer: SimpleConsumer, topic: str, partition: int, policy: str) -> int:
    """Return the offset that autooffset.reset selects. Raises InvalidConfig unless the policy is smallest or
    largest."""
    time_ms = RESET_TIMES.get(policy)
    if time_ms is None:
        raise InvalidConfig(f"no stored offset to start at, and autooffset.reset is {policy!r}")
    offsets = consumer.get_offsets_before(topic, partition, time_ms, 1)
    if not offsets:
        raise UnknownError(f"the broker returned no offset for {topic}-{partition}")
    return offsets[0]


class Fetcher:
    """The fetch thread of one broker (kafka.consumer.FetcherRunnable)."""

    def __init__(
        self,
        broker: BrokerNode,
        positions: Sequence[ConsumedPosition],
        config: ConsumerConfig,
        store_offset: Callable[[ConsumedPosition, int], None],
    ) -> None:
        self._broker = broker
        self._positions = list(positions)
        self._generations = {id(position): position.queue.generation for position in positions}
        self._config = config
        self._store_offset = store_offset
        self._stopping = threading.Event()
        self._consumer = SimpleConsumer(
            broker.host,
            broker.port,
            socket_timeout_s=config.socket_timeout_ms / 1000,
            buffer_size=config.socket_buffer_size,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"kafkalite-classic-fetch-{broker.broker_id}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()
        self._consumer.close()

    def join(self) -> None:
        """Wait until the thread has ended. Clear the queues before, because the thread may wait for room in one of
        them."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._positions and not self._stopping.is_set():
                if not self._turn():
                    self._stopping.wait(self._config.fetcher_backoff_ms / 1000)
        except ClassicError as error:
            logger.warning("fetching from broker %d stopped: %s", self._broker.broker_id, error)
        except Exception:
            logger.exception("fetching from broker %d stopped", self._broker.broker_id)
        finally:
            self._consumer.close()

    def _turn(self) -> bool:
        """Send one MULTIFETCH. Return whether the response had messages."""
        requests = [
            FetchRequest(position.topic, position.partition.partition, position.fetched, self._config.fetch_size)
            for position in self._positions
        ]
        try:
            answers = self._consumer.multifetch(requests)
        except ConnectionFailed as error:
            if not self._stopping.is_set():
                logger.warning("%s", error, extra=fields(broker=self._broker.broker_id))
            return False
        found = False
        for position, answer in zip(list(self._positions), answers, strict=True):
            if self._stopping.is_set():
                break
            try:
                if isinstance(answer, ClassicError):
                    raise answer
                found = self._take(position, answer.data) or found
            except ConnectionFailed as error:
                logger.warning("%s", error, extra=fields(broker=self._broker.broker_id))
                return found
            except ClassicError as error:
                if isinstance(error, OffsetOutOfRange) and self._config.auto_offset_reset in RESET_TIMES:
                    found = self._reset(position) or found
                else:
                    self._give_up(position, error)
        return found

    def _take(self, position: ConsumedPosition, data: memoryview) -> bool:
        """Put the complete messages of a fetched set into the stream's queue. Return whether there were any."""
        size = whole_size(data)
        if not size and len(data):
            data = self._fetch_larger(position)
            size = whole_size(data)
        if size:
            self._put(FetchedChunk(data[:size], position.fetched, position))
            position.fetched += size
        return size > 0

    def _fetch_larger(self, position: ConsumedPosition) -> memoryview:
        """Fetch a message that is larger than fetch.size. Raises InvalidMessageSize if it is larger than
        fetch.size.max."""
        size_max, limit = self._config.fetch_size, self._config.fetch_size_limit
        while size_max < limit:
            size_max = min(2 * size_max, limit)
            partition = position.partition.partition
            data = self._consumer.fetch(position.topic, partition, position.fetched, size_max).data
            if not len(data) or whole_size(data):
                return data
        raise InvalidMessageSize(
            f"the message at offset {position.fetched} of {position.topic}-{position.partition} is larger than"
            f" fetch.size.max, {limit} bytes, or corrupt"
        )

    def _give_up(self, position: ConsumedPosition, error: ClassicError) -> None:
        """Report the error to the application, and stop reading the partition. Other partitions are read as before."""
        logger.warning(
            "reading %s-%s stops: %s", position.topic, position.partition, error,
            extra=fields(broker=self._broker.broker_id),
        )  # fmt: skip
        self._positions.remove(position)
        self._put(FetchedChunk(memoryview(b""), position.fetched, position, error))

    def _put(self, chunk: FetchedChunk) -> None:
        if not chunk.position.queue.put(chunk, self._generations[id(chunk.position)]):
            self._stopping.set()  # a rebalance has cleared the streams

    def _reset(self, position: ConsumedPosition) -> bool:
        """Continue at the offset that autooffset.reset selects. Returns False if the broker did not respond."""
        policy = self._config.auto_offset_reset
        try:
            offset = reset_offset(self._consumer, position.topic, position.partition.partition, policy)
        except ConnectionFailed as error:
            logger.warning("%s", error)
            return False
        logger.warning(
            "offset %d of %s-%s does not exist; reading continues at offset %d",
            position.fetched, position.topic, position.partition, offset,
        )  # fmt: skip
        position.reset(offset)
        self._store_offset(position, offset)
        return True
