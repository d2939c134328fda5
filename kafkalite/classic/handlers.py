"""Extension points for applications: encoders, decoders, and the hooks of the asynchronous producer.

    send ─▶ before_enqueue ─▶ queue ─▶ after_enqueue
                                │
            send thread ─▶ after_dequeuing_existing_data ─▶ batch full or old ─▶ EventHandler.handle
                                                                                    └─▶ before_sending_data ─▶ socket
    close ─▶ CallbackHandler.close ─▶ drain ─▶ last_batch_before_close ─▶ EventHandler.close

Source: `kafkalite.classic`, fact 6. Hooks run on the caller's thread (the first two) or on the send thread of a broker.
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
    """kafka.serializer.Encoder."""

    def to_message(self, event: Any) -> Message: ...


class Decoder(Protocol):
    """kafka.serializer.Decoder."""

    def to_event(self, message: Message) -> Any: ...


class DefaultEncoder:
    """Takes a Message as it is, and bytes as its payload (kafka.serializer.DefaultEncoder)."""

    def to_message(self, event: Any) -> Message:
        return event if isinstance(event, Message) else Message(event)


class StringEncoder(DefaultEncoder):
    """Text as UTF-8 (kafka.serializer.StringEncoder); a Message and bytes as DefaultEncoder takes them.

    Bytes that `surrogateescape` made text of are bytes again.
    """

    def to_message(self, event: Any) -> Message:
        return super().to_message(event.encode("utf-8", "surrogateescape") if isinstance(event, str) else event)


class DefaultDecoder:
    """The Message itself (kafka.serializer.DefaultDecoder)."""

    def to_event(self, message: Message) -> Any:
        return message


class PayloadDecoder:
    """The payload's bytes."""

    def to_event(self, message: Message) -> Any:
        return message.payload


class StringDecoder:
    """Text from UTF-8; what is none is replaced (kafka.serializer.StringDecoder)."""

    def to_event(self, message: Message) -> Any:
        return message.payload.decode("utf-8", "replace")


class QueueItem(NamedTuple):
    """One event in a queue (kafka.producer.async.QueueItem)."""

    data: Any
    topic: str
    partition: int


class CallbackHandler:
    """kafka.producer.async.CallbackHandler: override what is of interest."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Called once, with callback.handler.props."""

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """May replace an event on its way into the queue."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """Says whether the event found room."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Iterable[QueueItem]:
        """For each turn of the send thread, with None when none came in time. What it returns goes into the batch."""
        return () if item is None else (item,)

    def before_sending_data(self, items: list[QueueItem]) -> list[QueueItem]:
        """May replace a batch just before it is grouped and encoded."""
        return items

    def last_batch_before_close(self) -> Iterable[QueueItem]:
        """What was kept back and has to go now."""
        return ()

    def close(self) -> None:
        """The producer closes: called first."""


class EventHandler(Protocol):
    """kafka.producer.async.EventHandler."""

    def init(self, properties: Mapping[str, str]) -> None: ...

    def handle(self, items: Sequence[QueueItem], producer: SyncProducer, encoder: Encoder) -> None: ...

    def close(self) -> None: ...


class DefaultEventHandler:
    """One MULTIPRODUCE for each batch, a message set for each topic and partition (kafka...DefaultEventHandler)."""

    def __init__(self, config: QueueSettings, callback: CallbackHandler) -> None:
        self._config = config
        self._callback = callback

    def init(self, properties: Mapping[str, str]) -> None:
        """Nothing to prepare."""

    def handle(self, items: Sequence[QueueItem], producer: SyncProducer, encoder: Encoder) -> None:
        """Sends a batch, num.retries times more when that fails; then raises what was wrong."""
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
                producer.send_frame(wire.encode_multiproduce(requests))  # sizes are checked already
            except ClassicError as error:
                if attempt == self._config.num_retries:
                    raise
                logger.warning("sending %d events failed, retrying: %s", len(chosen), error)
            else:
                return

    def close(self) -> None:
        """Nothing is kept."""

    def _codec(self, topic: str) -> int:
        """compressed.topics is about asynchronous producers alone; empty means all."""
        chosen = self._config.compressed_topics
        return self._config.compression_codec if not chosen or topic in chosen else 0


def pack(messages: Sequence[Message | bytes], codec: int, size_max: int) -> bytes:
    """A message set, compressed into one wrapper when there is a codec; MessageSizeTooLarge before anything is sent."""
    data = encode_message_set(messages, codec)
    check_size(check(data, verify=False)[2], size_max)
    return data
