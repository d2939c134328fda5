"""Send events to one broker asynchronously, through a queue and a thread (0.7's AsyncProducer).

    send ─▶ queue (queue.size) ─▶ send thread: batch.size events, or queue.time ms after the last batch ─▶ event handler

If the queue is full, queue.enqueueTimeout.ms decides what `send` does:

    0           raise QueueFull at once
    positive    wait for this time until there is room, then raise QueueFull
    negative    wait until there is room

The events of a batch that cannot be sent are lost. The loss is logged and counted in `failed_count`.

Thread rule: any thread may send. `kafkalite.classic.handlers` lists the threads of the hooks.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.base import forks
from kafkalite.classic import named
from kafkalite.classic.config import AsyncProducerConfig
from kafkalite.classic.errors import QueueClosed, QueueFull
from kafkalite.classic.handlers import QueueItem
from kafkalite.classic.sync_producer import SyncProducer
from kafkalite.classic.wire import ANY_PARTITION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from kafkalite.classic.config import QueueSettings
    from kafkalite.classic.handlers import CallbackHandler, Encoder, EventHandler

logger = logging.getLogger(__name__)

_END: Final = QueueItem(None, "", -1)
"""The last item; nothing is sent after it."""


class AsyncProducer:
    """An asynchronous producer for one broker (kafka.producer.async.AsyncProducer). `create` builds one from
    settings."""

    def __init__(self, producer: SyncProducer, config: QueueSettings, handlers: named.Handlers | None = None) -> None:
        handlers = handlers or named.handlers(config)
        self._producer = producer
        self._config = config
        self._encoder = handlers.encoder
        self._event_handler = handlers.event_handler
        self._callback = handlers.callback
        self._queue: queue.Queue[QueueItem] = queue.Queue(config.queue_size)
        self._closed = False
        self.dropped_count = 0
        self.failed_count = 0
        self._thread = threading.Thread(target=self._run, name="kafkalite-classic-send", daemon=True)
        self._thread.start()
        forks.register(self)

    @classmethod
    def create(
        cls,
        config: AsyncProducerConfig | Mapping[str, str],
        *,
        encoder: Encoder | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
    ) -> Self:
        """Build a producer for the broker with the `host` and `port` of the settings.

        An encoder or handler given here takes precedence over the class that the settings name.
        """
        if not isinstance(config, AsyncProducerConfig):
            config = AsyncProducerConfig.from_properties(dict(config))
        handlers = named.handlers(
            config, encoder=encoder, event_handler=event_handler, callback_handler=callback_handler
        )
        return cls(SyncProducer(config.host, config.port, config), config, handlers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, topic: str, event: Any, partition: int = ANY_PARTITION) -> None:
        """Queue one event. Raises QueueFull if the event was dropped, and QueueClosed after `close`."""
        if self._closed:
            raise QueueClosed("the producer is closed")
        item = self._callback.before_enqueue(QueueItem(event, topic, partition))
        timeout_ms = self._config.queue_enqueue_timeout_ms
        try:
            if timeout_ms == 0:
                self._queue.put_nowait(item)
            else:
                self._queue.put(item, timeout=None if timeout_ms < 0 else timeout_ms / 1000)
        except queue.Full:
            self.dropped_count += 1
            self._callback.after_enqueue(item, added=False)
            raise QueueFull(f"the queue is full ({self._config.queue_size} events); this event was dropped") from None
        self._callback.after_enqueue(item, added=True)

    def leave(self) -> None:
        """Close in a forked child without sending. The parent sends the queued events."""
        self._closed = True

    def close(self) -> None:
        """Send the queued events, then close the connection."""
        if self._closed:
            return
        self._callback.close()
        self._closed = True
        self._queue.put(_END)
        self._thread.join()
        self._event_handler.close()
        self._producer.close()

    # --- the send thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        batch: list[QueueItem] = []
        sent_at = time.monotonic()
        while True:
            wait_s = sent_at + self._config.queue_time / 1000 - time.monotonic()
            try:
                item = self._queue.get(timeout=wait_s) if wait_s > 0 else self._queue.get_nowait()
            except queue.Empty:
                batch.extend(self._callback.after_dequeuing_existing_data(None))
                self._handle(batch)
                batch, sent_at = [], time.monotonic()
                continue
            if item is _END:
                batch.extend(self._callback.last_batch_before_close())
                self._handle(batch)
                return
            batch.extend(self._callback.after_dequeuing_existing_data(item))
            if len(batch) >= self._config.batch_size:
                self._handle(batch)
                batch, sent_at = [], time.monotonic()

    def _handle(self, batch: list[QueueItem]) -> None:
        if not batch:
            return
        try:
            self._event_handler.handle(batch, self._producer, self._encoder)
        except Exception:  # an application's handler may raise anything; the thread must continue
            self.failed_count += len(batch)
            logger.exception("lost a batch of %d events that could not be sent", len(batch))
