"""Define the extension points for applications: encoders, decoders, and the hooks of the asynchronous producer.

    send    before_enqueue ─▶ the event enters the queue ─▶ after_enqueue
    batch   after_dequeuing_existing_data ─▶ the batch is full or old ─▶ EventHandler.handle ─▶ before_sending_data ─▶
            the batch is sent
    close   CallbackHandler.close ─▶ the queue is emptied ─▶ last_batch_before_close ─▶ EventHandler.close

Thread rule: `before_enqueue` and `after_enqueue` run on the caller's thread, and so do the `init` and `close` hooks.
The other hooks run on a broker's send thread.

Source: Kafka 0.7.2 (`kafkalite.classic`, fact 6).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalite._native.classic.message_set import check
from kafkalite.classic import wire
from kafkalite.classic.errors import ClassicError
from kafkalite.classic.messages import Message, check_size, encode_message_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkalite.classic.config import QueueSettings
    from kafkalite.classic.sync_producer import SyncProducer

logger = logging.getLogger(__name__)


class Encoder(Protocol):
    """Encodes an event as a message (kafka.serializer.Encoder)."""

    def to_message(self, event: Any) -> Message: ...


class Decoder(Protocol):
    """Decodes a message for the application (kafka.serializer.Decoder)."""

    def to_event(self, message: Message) -> Any: ...


class DefaultEncoder:
    """Returns a Message unchanged; encodes bytes as a message with this payload (kafka.serializer.DefaultEncoder)."""

    def to_message(self, event: Any) -> Message:
        return event if isinstance(event, Message) else Message(event)


class StringEncoder(DefaultEncoder):
    """Encodes text as UTF-8; other events as DefaultEncoder does (kafka.serializer.StringEncoder).

    Text with `surrogateescape` characters is encoded to the original bytes.
    """

    def to_message(self, event: Any) -> Message:
        return super().to_message(event.encode("utf-8", "surrogateescape") if isinstance(event, str) else event)


class DefaultDecoder:
    """Returns the Message itself (kafka.serializer.DefaultDecoder)."""

    def to_event(self, message: Message) -> Any:
        return message


class PayloadDecoder:
    """Returns the payload's bytes without the message."""

    def to_event(self, message: Message) -> Any:
        return message.payload


class StringDecoder:
    """Decodes the payload as UTF-8, and replaces invalid bytes (kafka.serializer.StringDecoder)."""

    def to_event(self, message: Message) -> Any:
        return message.payload.decode("utf-8", "replace")


class QueueItem(NamedTuple):
    """One event in a queue (kafka.producer.async.QueueItem)."""

    data: Any
    topic: str
    partition: int


class CallbackHandler:
    """Hooks of the asynchronous producer. Override the hooks that you need (kafka.producer.async.CallbackHandler)."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Called once, with callback.handler.props."""

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the event to queue: this one or another one."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """Called after an attempt to queue an event. `added` says that it was queued."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Iterable[QueueItem]:
        """Return the events to add to the batch. Called on each turn of the send thread; `item` is None if no event
        came."""
        return () if item is None else (item,)

    def before_sending_data(self, items: list[QueueItem]) -> list[QueueItem]:
        """Return the batch to send. Called just before the batch is grouped and encoded."""
        return items

    def last_batch_before_close(self) -> Iterable[QueueItem]:
        """Return events that this handler has kept back and that must be sent now."""
        return ()

    def close(self) -> None:
        """Called at the beginning of the producer's `close`."""


class EventHandler(Protocol):
    """Sends the batches of an asynchronous producer (kafka.producer.async.EventHandler)."""

    def init(self, properties: Mapping[str, str]) -> None: ...

    def handle(self, items: Sequence[QueueItem], producer: SyncProducer, encoder: Encoder) -> None: ...

    def close(self) -> None: ...


class DefaultEventHandler:
    """Sends one MULTIPRODUCE per batch, with a message set per topic and partition (kafka...DefaultEventHandler)."""

    def __init__(self, config: QueueSettings, callback: CallbackHandler) -> None:
        self._config = config
        self._callback = callback

    def init(self, properties: Mapping[str, str]) -> None:
        """Do nothing."""

    def handle(self, items: Sequence[QueueItem], producer: SyncProducer, encoder: Encoder) -> None:
        """Send a batch. Repeat it at most num.retries times if it fails, then raise the error."""
        chosen = self._callback.before_sending_data(list(items))
        groups: dict[tuple[str, int], list[Message]] = {}
        for item in chosen:
            groups.setdefault((item.topic, item.partition), []).append(encoder.to_message(item.data))
        requests = [
            wire.ProduceRequest(topic, partition, pack(messages, self._codec(topic), self._config.max_message_size))
            for (topic, partition), messages in groups.items()
        ]
        if not requests:
            return
        for attempt in range(self._config.num_retries + 1):
            try:
                producer.send_frame(wire.encode_multiproduce(requests))  # sizes were checked before
            except ClassicError as error:
                if attempt == self._config.num_retries:
                    raise
                logger.warning("sending %d events failed, retrying: %s", len(chosen), error)
            else:
                return

    def close(self) -> None:
        """Do nothing."""

    def _codec(self, topic: str) -> int:
        """Return the codec for a topic. If compressed.topics is empty, all topics are compressed.

        Only asynchronous producers use compressed.topics.
        """
        chosen = self._config.compressed_topics
        return self._config.compression_codec if not chosen or topic in chosen else 0


def pack(messages: Sequence[Message | bytes], codec: int, size_max: int) -> bytes:
    """Encode a message set, with a codec as one compressed wrapper message. Raises MessageSizeTooLarge."""
    data = encode_message_set(messages, codec)
    check_size(check(data, verify=False)[2], size_max)
    return data
