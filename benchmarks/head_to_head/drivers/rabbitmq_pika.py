"""rabbitmq-pika: RabbitMQ through pika; rabbitmq_c.c's queue and messages.

Publishing without confirms uses BlockingConnection, which writes each message before it returns. With confirms that
would be one message in flight, so those runs use SelectConnection, whose callbacks tell what was confirmed. Consuming
is SelectConnection too, without acknowledgements: twice BlockingConnection's rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from benchmarks.head_to_head.drivers.common import Failure, Run, end_with, guarded

NAME = "rabbitmq-pika"
PROPERTIES = pika.BasicProperties(delivery_mode=2)
CHUNK_COUNT = 100


def parameters(run: Run) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(run.host, run.port, heartbeat=0)


def produce_unconfirmed(run: Run) -> None:
    connection = pika.BlockingConnection(parameters(run))
    channel = connection.channel()
    channel.queue_declare(run.topic, durable=True)
    publish, topic, payload = channel.basic_publish, run.topic, run.payload()
    run.begin()
    while run.count < run.messages:
        chunk = min(CHUNK_COUNT, run.messages - run.count)
        for _ in range(chunk):
            publish("", topic, payload, PROPERTIES)
        run.advance(run.count + chunk)
    run.end()
    connection.close()  # or the broker drops what waits


class Confirms:
    """Which delivery tags are confirmed: singly or all up to one, in any order."""

    def __init__(self) -> None:
        self.count = 0
        self._lowest = 1
        self._early: set[int] = set()

    def add(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._early -= set(range(self._lowest, tag + 1)) if self._early else set()
            self._lowest = max(self._lowest, tag + 1)
        else:
            self._early.add(tag)
        while self._lowest in self._early:
            self._early.remove(self._lowest)
            self._lowest += 1
        self.count = self._lowest - 1 + len(self._early)


class Client:
    """A SelectConnection whose loop runs in the thread that calls `run`; `ready` is called with an open channel."""

    def __init__(self, run: Run, ready: Callable[[Any], None]) -> None:
        self.connection = pika.SelectConnection(
            parameters(run),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._failed,
            on_close_callback=self._failed,
        )
        self._ready = ready
        self._stopped = False
        self.loop = self.connection.ioloop.start

    def stop(self) -> None:
        self._stopped = True
        self.connection.ioloop.stop()

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._failed)
        self._ready(channel)

    def _failed(self, _: object, error: BaseException) -> None:
        if not self._stopped:
            end_with(NAME, f"the connection failed: {error}")  # pika would go on after an exception


def produce_confirmed(run: Run) -> None:
    payload, confirms, sent = run.payload(), Confirms(), 0

    def fill(channel: Any) -> None:
        nonlocal sent
        while sent < run.messages and sent - confirms.count + min(run.batch, run.messages - sent) <= run.window:
            for _ in range(min(run.batch, run.messages - sent)):
                channel.basic_publish("", run.topic, payload, PROPERTIES)
                sent += 1

    def ready(channel: Any) -> None:
        def on_confirm(frame: Any) -> None:
            if frame.method.NAME != "Basic.Ack":
                raise Failure("the broker refused a message")
            confirms.add(frame.method.delivery_tag, multiple=frame.method.multiple)
            run.advance(confirms.count)
            if run.count == run.messages:
                run.end()
                client.stop()
            fill(channel)

        def begin(_: object) -> None:
            run.begin()
            fill(channel)

        channel.confirm_delivery(on_confirm)
        channel.queue_declare(run.topic, durable=True, callback=begin)

    client = Client(run, ready)
    client.loop()


def consume(run: Run) -> None:
    waiting: list[bytes] = []

    def on_message(_channel: object, _method: object, _properties: object, body: bytes) -> None:
        waiting.append(body)
        if len(waiting) >= CHUNK_COUNT or run.count + len(waiting) >= run.messages:
            run.receive(waiting)
            waiting.clear()
            if run.count == run.messages:
                run.end()
                client.stop()

    def ready(channel: Any) -> None:
        run.begin()
        channel.basic_consume(run.topic, on_message, auto_ack=True)

    client = Client(run, ready)
    client.loop()


def produce(run: Run) -> None:
    (produce_unconfirmed if run.ack == "none" else produce_confirmed)(run)


def latency(run: Run) -> None:
    """Two connections; without confirms, which BlockingConnection would wait for one by one."""
    sending = pika.BlockingConnection(parameters(run))
    channel = sending.channel()
    channel.queue_declare(run.topic, durable=True)
    subscribed = False

    def on_message(_channel: object, _method: object, _properties: object, body: bytes) -> None:
        run.receive_stamped(body)
        if run.received == run.total:
            client.stop()

    def ready(reading: Any) -> None:
        def on_subscribed(_: object) -> None:
            nonlocal subscribed
            subscribed = True
            client.connection.ioloop.stop()

        reading.basic_consume(run.topic, on_message, auto_ack=True, callback=on_subscribed)

    client = Client(run, ready)
    while not subscribed:
        client.loop()
    run.latency(lambda payload: channel.basic_publish("", run.topic, payload, PROPERTIES), None, client.loop)


def main() -> None:
    run = Run.open(NAME, acks=("one", "none", "disk"))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"pika {pika.__version__}")


if __name__ == "__main__":
    main()
