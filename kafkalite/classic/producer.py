"""The producer of Kafka 0.7: events to topics, at once or queued, over brokers from ZooKeeper or a fixed list.

    ProducerData(topic, key, events) ─▶ partitioner picks (broker, partition) ─┬─ sync:  PRODUCE or MULTIPRODUCE
                                                                               └─ async: the broker's queue

Nothing is acknowledged: the protocol has no answer to a produce request. With a fixed list the broker picks the
partition, and keys have no meaning. Source: kafka-0.7.md section 6.

Thread rule: any thread may send. Connections are made when a broker is first written to.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalite._native.message_set import encode_produce
from kafkalite.classic import wire
from kafkalite.classic.async_producer import AsyncProducer
from kafkalite.classic.brokers import brokers_of
from kafkalite.classic.config import ProducerConfig
from kafkalite.classic.errors import InvalidConfig, InvalidPartition, NoBrokersForPartition, QueueClosed
from kafkalite.classic.handlers import CallbackHandler, DefaultEncoder, DefaultEventHandler, QueueItem, check_size, pack
from kafkalite.classic.partitioner import DefaultPartitioner
from kafkalite.classic.sync_producer import SyncProducer

if TYPE_CHECKING:
    from typing import Self

    from kafkalite.classic.brokers import Address
    from kafkalite.classic.handlers import Encoder, EventHandler
    from kafkalite.classic.partitioner import Partitioner
    from kafkalite.zookeeper.nodes import BrokerPartition


@dataclass(frozen=True, slots=True)
class ProducerData:
    """Events for one topic (kafka.javaapi.producer.ProducerData). The key chooses the partition, None any."""

    topic: str
    data: Sequence[Any]
    key: Any = None


class Producer:
    """kafka.producer.Producer."""

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
        """InvalidConfig for settings that do not fit; StartupError when ZooKeeper does not answer."""
        self._config = config = (
            config if isinstance(config, ProducerConfig) else ProducerConfig.from_properties(dict(config))
        )
        if partitioner is not None and config.broker_list:
            raise InvalidConfig("with broker.list the broker picks the partition, a partitioner has no say")
        if config.producer_type == "sync" and (event_handler is not None or callback_handler is not None):
            raise InvalidConfig("event and callback handlers are for producer.type=async")
        self._encoder = encoder or DefaultEncoder()
        self._plain = type(self._encoder) is DefaultEncoder  # which the message set's encoder does by itself
        self._partitioner = partitioner or DefaultPartitioner()
        self._callback = callback_handler or CallbackHandler()
        self._event_handler = event_handler or DefaultEventHandler(config, self._callback)
        self._callback.init(callback_handler_properties or {})
        self._event_handler.init(event_handler_properties or {})
        self._brokers = brokers_of(config)
        self._lock = threading.Lock()
        self._sync: dict[Address, SyncProducer] = {}  # guarded by _lock
        self._async: dict[Address, AsyncProducer] = {}  # guarded by _lock
        self._closed = False

    def send(self, *data: ProducerData) -> None:
        """Sends, or queues, all events. ConnectionFailed, MessageSizeTooLarge, NoBrokersForPartition, QueueFull."""
        if self._closed:
            raise QueueClosed("the producer is closed")
        if self._config.producer_type == "async":
            for item in data:
                address, partition = self._place(item)
                queue = self._queue_of(address)
                for event in item.data:
                    queue.send(QueueItem(event, item.topic, partition))
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
            if len(requests) == 1:
                producer.send(requests[0].topic, requests[0].message_set, requests[0].partition)
            else:
                producer.multi_send(requests)

    @property
    def dropped_count(self) -> int:
        """Events that found their queue full."""
        with self._lock:
            return sum(queue.dropped_count for queue in self._async.values())

    @property
    def failed_count(self) -> int:
        """Queued events whose batch could not be sent."""
        with self._lock:
            return sum(queue.failed_count for queue in self._async.values())

    def close(self) -> None:
        """Sends what is queued and closes every connection. Idempotent."""
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
        """The usual case, one PRODUCE without compression: its frame is made at once, each payload copied once."""
        address, partition = self._place(item)
        frame, largest = encode_produce(wire.produce_head(item.topic, partition), self._messages(item))
        check_size(largest, self._config.max_message_size)
        self._producer_of(address).send_frame(frame)

    def _messages(self, item: ProducerData) -> list[Any]:
        """Messages and payloads, of which the encoder of message sets makes messages."""
        if self._plain:
            return item.data if type(item.data) is list else list(item.data)
        return [self._encoder.to_message(event) for event in item.data]

    def _place(self, item: ProducerData) -> tuple[Address, int]:
        """The broker and partition for some events; asks ZooKeeper again while the chosen broker is unknown."""
        for _ in range(self._config.zk_read_num_retries + 1):
            choices = self._brokers.partitions(item.topic)
            chosen = self._choose(item, choices)
            address = self._brokers.address(chosen.broker_id)
            if address is not None:
                return address, chosen.partition
            self._brokers.refresh()
        raise NoBrokersForPartition(f"the broker of a partition of topic {item.topic!r} is not alive")

    def _choose(self, item: ProducerData, choices: list[BrokerPartition]) -> BrokerPartition:
        if item.key is None or self._config.broker_list:
            return choices[0] if len(choices) == 1 else random.choice(choices)
        index = self._partitioner.partition(item.key, len(choices))
        if not 0 <= index < len(choices):
            raise InvalidPartition(f"the partitioner chose {index} of {len(choices)} partitions of {item.topic!r}")
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
                found = self._async[address] = AsyncProducer(
                    producer, self._config, self._encoder, self._event_handler, self._callback
                )
            return found


def handler_properties(text: str) -> dict[str, str]:
    """`k1=v1,k2=v2`, as callback.handler.props and event.handler.props are written."""
    pairs: Iterable[tuple[str, str, str]] = (part.partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}
