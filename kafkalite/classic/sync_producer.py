"""Sends message sets to one broker, on one connection: 0.7's SyncProducer.

The protocol does not acknowledge: a send that returns was handed to the kernel, no more. After reconnect_interval sends
or reconnect_time_interval_ms the connection is recreated, so that a load balancer in between may choose again; that
clock starts at a random point in the past, so that many producers do not reconnect at once. A send that fails is not
repeated. Source: `kafkalite.classic`, fact 6.

Thread rule: any thread; a lock keeps frames whole.
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
    """kafka.producer.SyncProducer."""

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
        """For the broker that `host` and `port` of the settings name."""
        if not isinstance(config, SyncProducerConfig):
            config = SyncProducerConfig.from_properties(dict(config))
        return cls(config.host, config.port, config)

    def send(
        self, topic: str, messages: MessageSet | bytes | Sequence[Message | bytes], partition: int = wire.ANY_PARTITION
    ) -> None:
        """One PRODUCE request: messages and payloads, or a set that is encoded already (a MessageSet, its bytes).

        ConnectionFailed when it could not be handed over. MessageSizeTooLarge, and InvalidMessageSize for a set that
        does not end where its last message does, before anything is sent.
        """
        self.send_frame(wire.encode_produce(wire.ProduceRequest(topic, partition, self._checked(messages))))

    def multi_send(self, requests: Sequence[wire.ProduceRequest]) -> None:
        """One MULTIPRODUCE request; errors as for `send`."""
        for request in requests:
            self._checked(request.message_set)
        self.send_frame(wire.encode_multiproduce(requests))

    def close(self) -> None:
        """Closes the connection."""
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
        """One request that is encoded, and checked, already. ConnectionFailed when it could not be handed over."""
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
