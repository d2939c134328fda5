"""Sends message sets to one broker, on one connection: 0.7's SyncProducer.

The protocol does not acknowledge: a send that returns was handed to the kernel, no more. After reconnect_interval sends
or reconnect_time_interval_ms the connection is made anew, so that a load balancer in between may choose again; that
clock starts at a random point in the past, so that many producers do not reconnect at once. A send that fails is not
repeated. Source: kafka-0.7.md section 6.

Thread rule: any thread; a lock keeps frames whole.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from kafkalite.classic import wire
from kafkalite.classic.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.classic.config import ProducerConfig


class SyncProducer:
    """kafka.producer.SyncProducer."""

    def __init__(self, host: str, port: int, config: ProducerConfig) -> None:
        self._config = config
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

    def send(self, topic: str, message_set: bytes, partition: int = wire.ANY_PARTITION) -> None:
        """One PRODUCE request. ConnectionFailed when it could not be handed over."""
        self._send(wire.encode_produce(wire.ProduceRequest(topic, partition, message_set)))

    def send_frame(self, frame: bytes) -> None:
        """One request that is encoded already. ConnectionFailed when it could not be handed over."""
        self._send(frame)

    def multi_send(self, requests: Sequence[wire.ProduceRequest]) -> None:
        """One MULTIPRODUCE request."""
        self._send(wire.encode_multiproduce(requests))

    def close(self) -> None:
        with self._lock:
            self._channel.close()

    def _send(self, frame: bytes) -> None:
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
