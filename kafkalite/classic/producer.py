"""Send events to the partitions of topics, at once or through a queue (0.7's Producer).

For each ProducerData(topic, key, events), the producer picks a broker and a partition:

    a synchronous producer      sends a PRODUCE or MULTIPRODUCE request to this broker
    an asynchronous producer    adds the events to the queue of this broker

Nothing is acknowledged, because a produce request has no response. The brokers come from ZooKeeper or from a fixed
list. With a fixed list, keys have no effect.

Thread rule: any thread may send.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from kafkalite._native.classic.message_set import encode_produce
from kafkalite.base import forks
from kafkalite.base.dataclass import dataclass
from kafkalite.classic import named, wire
from kafkalite.classic.async_producer import AsyncProducer
from kafkalite.classic.brokers import brokers_of
from kafkalite.classic.config import ProducerConfig
from kafkalite.classic.errors import InvalidConfig, InvalidPartition, NoBrokersForPartition, QueueClosed
from kafkalite.classic.handlers import DefaultEncoder, pack
from kafkalite.classic.messages import check_size
from kafkalite.classic.sync_producer import SyncProducer
from kafkalite.zookeeper.nodes import BrokerPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from kafkalite.classic.brokers import Address
    from kafkalite.classic.handlers import CallbackHandler, Encoder, EventHandler
    from kafkalite.classic.partitioner import Partitioner


@dataclass(frozen=True, slots=True)
class ProducerData:
    """Events for one topic (kafka.javaapi.producer.ProducerData).

    `partition` is their destination: a number (on any broker that has this partition) or a BrokerPartition. If it is
    None, the key determines the partition; without a key the partition is random.
    """

    topic: str
    data: Sequence[Any]
    key: Any = None
    partition: int | BrokerPartition | None = None


class Producer:
    """Sends events to a topic's partitions (kafka.producer.Producer)."""

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, str],
        *,
        encoder: Encoder | None = None,
        partitioner: Partitioner | None = None,
        event_handler: EventHandler | None = None,
        event_handler_properties: Mapping[str, str] | None = None,
        callback_handler: CallbackHandler | None = None,
        callback_handler_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create the producer. InvalidConfig for invalid settings, StartupError if ZooKeeper does not respond.

        An object or properties given here take precedence over the settings `serializer.class`, `partitioner.class`,
        `event.handler` and `callback.handler`, and over the handlers' properties in the settings.
        """
        self._config = config = (
            config if isinstance(config, ProducerConfig) else ProducerConfig.from_properties(dict(config))
        )
        if partitioner is not None and config.broker_list:
            raise InvalidConfig("a partitioner cannot be used with broker.list: the broker picks the partition")
        if config.producer_type == "sync" and (event_handler is not None or callback_handler is not None):
            raise InvalidConfig("event and callback handlers need producer.type=async")
        self._partitioner = partitioner or named.partitioner(config)
        self._handlers = named.handlers(
            config,
            encoder=encoder,
            event_handler=event_handler,
            event_handler_properties=event_handler_properties,
            callback_handler=callback_handler,
            callback_handler_properties=callback_handler_properties,
        )
        self._encoder = self._handlers.encoder
        self._plain = type(self._encoder) is DefaultEncoder  # the message set's encoder then needs no help
        self._brokers = brokers_of(config)
        self._lock = threading.Lock()
        self._sync: dict[Address, SyncProducer] = {}  # guarded by _lock
        self._async: dict[Address, AsyncProducer] = {}  # guarded by _lock
        self._closed = False
        self._origin = forks.Origin()
        forks.register(self)

    def leave(self) -> None:
        """Close in a forked child. Queues and connections belong to the parent."""
        self._closed = True

    def send(self, *data: ProducerData) -> None:
        """Send all events, or queue them if the producer is asynchronous.

        Raises ConnectionFailed, InvalidPartition, MessageSizeTooLarge, NoBrokersForPartition, QueueFull and
        QueueClosed.
        """
        if self._closed:
            raise QueueClosed("the producer is closed")
        if self._config.producer_type == "async":
            for item in data:
                address, partition = self._place(item)
                queue = self._queue_of(address)
                for event in item.data:
                    queue.send(item.topic, event, partition)
            return
        if len(data) == 1 and self._config.compression_codec == 0:
            self._send_plainly(data[0])
            return
        grouped: dict[Address, list[wire.ProduceRequest]] = {}
        for item in data:
            address, partition = self._place(item)
            message_set = pack(self._messages(item), self._config.compression_codec, self._config.max_message_size)
            grouped.setdefault(address, []).append(wire.ProduceRequest(item.topic, partition, message_set))
        for address, requests in grouped.items():
            producer = self._producer_of(address)
            # Sizes were checked before.
            if len(requests) == 1:
                producer.send_frame(wire.encode_produce(requests[0]))
            else:
                producer.send_frame(wire.encode_multiproduce(requests))

    @property
    def dropped_count(self) -> int:
        """The number of events dropped because their queue was full."""
        with self._lock:
            return sum(queue.dropped_count for queue in self._async.values())

    @property
    def failed_count(self) -> int:
        """The number of queued events whose batch could not be sent."""
        with self._lock:
            return sum(queue.failed_count for queue in self._async.values())

    def close(self) -> None:
        """Send queued events and close every connection. Idempotent. In a forked child this does nothing."""
        if not self._origin.is_here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            queues, producers = list(self._async.values()), list(self._sync.values())
        for queue in queues:
            queue.close()
        for producer in producers:
            producer.close()
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_plainly(self, item: ProducerData) -> None:
        """Send one PRODUCE without compression, the common case. Each payload is copied only once."""
        address, partition = self._place(item)
        frame, largest = encode_produce(wire.produce_head(item.topic, partition), self._messages(item))
        check_size(largest, self._config.max_message_size)
        self._producer_of(address).send_frame(frame)

    def _messages(self, item: ProducerData) -> list[Any]:
        """Return the encoded messages; with the default encoder the events themselves, since the native encoder accepts
        them."""
        if self._plain:
            return item.data if type(item.data) is list else list(item.data)
        return [self._encoder.to_message(event) for event in item.data]

    def _place(self, item: ProducerData) -> tuple[Address, int]:
        """Return the broker and partition for events. Read ZooKeeper again while the chosen broker is unknown."""
        for _ in range(self._config.zk_read_num_retries + 1):
            choices = self._brokers.partitions(item.topic)
            chosen = self._choose(item, choices)
            address = self._brokers.address(chosen.broker_id)
            if address is not None:
                return address, chosen.partition
            self._brokers.refresh()
        raise NoBrokersForPartition(f"the broker of the chosen partition of topic {item.topic!r} is down")

    def _choose(self, item: ProducerData, choices: list[BrokerPartition]) -> BrokerPartition:
        if item.partition is not None:
            choices = named_partitions(choices, item.partition)
            if not choices:
                raise InvalidPartition(f"no live broker has partition {item.partition} of topic {item.topic!r}")
        if item.partition is not None or item.key is None or self._config.broker_list:
            return choices[0] if len(choices) == 1 else random.choice(choices)
        index = self._partitioner.partition(item.key, len(choices))
        if not 0 <= index < len(choices):
            raise InvalidPartition(f"the partitioner chose partition {index}; topic {item.topic!r} has {len(choices)}")
        return choices[index]

    def _producer_of(self, address: Address) -> SyncProducer:
        with self._lock:
            found = self._sync.get(address)
            if found is None:
                found = self._sync[address] = SyncProducer(address.host, address.port, self._config)
            return found

    def _queue_of(self, address: Address) -> AsyncProducer:
        with self._lock:
            if self._closed:
                raise QueueClosed("the producer is closed")
            found = self._async.get(address)
            if found is None:
                producer = SyncProducer(address.host, address.port, self._config)
                found = self._async[address] = AsyncProducer(producer, self._config, self._handlers)
            return found


def named_partitions(choices: Sequence[BrokerPartition], wanted: int | BrokerPartition) -> list[BrokerPartition]:
    """Return the partitions of a topic that a number or a BrokerPartition selects.

    With a fixed list of brokers the partitions are unknown. Then every broker counts as having a partition of this
    number.
    """
    broker_id, number = wanted if isinstance(wanted, BrokerPartition) else (None, wanted)
    return [
        BrokerPartition(choice.broker_id, number)
        for choice in choices
        if number >= 0 and choice.partition in {number, wire.ANY_PARTITION} and broker_id in {None, choice.broker_id}
    ]
