"""Send message sets to one broker on one connection (0.7's SyncProducer).

The protocol has no acknowledgements: when a send returns, only the kernel has the message. A failed send is not
repeated.

Thread rule: any thread. A lock keeps frames whole.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from kafkalite._native.classic.message_set import check
from kafkalite.classic import wire
from kafkalite.classic.channel import Channel
from kafkalite.classic.config import SendSettings, SyncProducerConfig
from kafkalite.classic.errors import InvalidMessageSize
from kafkalite.classic.messages import MessageSet, check_size, encode_message_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from kafkalite.classic.messages import Message


class SyncProducer:
    """Sends message sets to one broker (kafka.producer.SyncProducer).

    It reconnects after `reconnect_interval` sends or `reconnect_time_interval_ms`, so that a load balancer can choose
    another broker. The first time interval is shortened at random, so that many producers do not reconnect at the same
    time.
    """

    def __init__(self, host: str, port: int, config: SendSettings | None = None) -> None:
        self._config = config = config or SendSettings()
        self._channel = Channel(
            host,
            port,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            socket_timeout_s=config.socket_timeout_ms / 1000,
            send_buffer_size=config.buffer_size,
        )
        self._lock = threading.Lock()
        self._sent_count = 0
        self._connected_at = time.monotonic() - random.random() * max(config.reconnect_time_interval_ms, 0) / 1000

    @classmethod
    def create(cls, config: SyncProducerConfig | Mapping[str, str]) -> Self:
        """Build a producer for the broker with the `host` and `port` of the settings."""
        if not isinstance(config, SyncProducerConfig):
            config = SyncProducerConfig.from_properties(dict(config))
        return cls(config.host, config.port, config)

    def send(
        self, topic: str, messages: MessageSet | bytes | Sequence[Message | bytes], partition: int = wire.ANY_PARTITION
    ) -> None:
        """Send one PRODUCE request. `messages` are Message objects and payloads, or an encoded set (a MessageSet or
        bytes).

        Raises ConnectionFailed if the kernel did not accept the request. Raises MessageSizeTooLarge before it sends,
        and InvalidMessageSize for a set that does not end with a complete message.
        """
        self.send_frame(wire.encode_produce(wire.ProduceRequest(topic, partition, self._checked(messages))))

    def multi_send(self, requests: Sequence[wire.ProduceRequest]) -> None:
        """Send one MULTIPRODUCE request. Raises the same errors as `send`."""
        for request in requests:
            self._checked(request.message_set)
        self.send_frame(wire.encode_multiproduce(requests))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, messages: MessageSet | bytes | Sequence[Message | bytes]) -> bytes:
        if isinstance(messages, MessageSet):
            messages = bytes(messages.data)
        data = messages if isinstance(messages, bytes) else encode_message_set(messages)
        size, _, largest, _, _ = check(data, verify=False)
        if size != len(data):
            raise InvalidMessageSize(f"the message set has {len(data)} bytes, but its messages end at byte {size}")
        check_size(largest, self._config.max_message_size)
        return data

    def send_frame(self, frame: bytes) -> None:
        """Send one request that is already encoded and checked. Raises ConnectionFailed if the kernel did not accept
        it."""
        with self._lock:
            self._channel.send(frame)
            self._sent_count += 1
            interval_ms = self._config.reconnect_time_interval_ms
            due = self._sent_count >= self._config.reconnect_interval or (
                interval_ms >= 0 and time.monotonic() - self._connected_at >= interval_ms / 1000
            )
            if due:
                self._channel.close()
                self._sent_count = 0
                self._connected_at = time.monotonic()
