"""Load driver rabbitmq-pika: RabbitMQ through pika, with the queue and messages of rabbitmq_c.c.

It uses BlockingConnection, as pika's documentation does. Only publishing with confirms uses SelectConnection, because
BlockingConnection allows one message in flight. Consuming uses a callback, without acknowledgements. Through
SelectConnection it was no faster, and cost the broker half as much again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from benchmarks.head_to_head.drivers.common import Confirms, Failure, Run, end_with, guarded

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


class Client:
    """A SelectConnection that calls `ready` with its channel once this is open."""

    def __init__(self, run: Run, ready: Callable[[Any], None]) -> None:
        self.connection = pika.SelectConnection(
            parameters(run),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._failed,
            on_close_callback=self._failed,
        )
        self._ready = ready
        self._stopped = False

    def loop(self) -> None:
        """Run the connection's loop until stop()."""
        self.connection.ioloop.start()

    def stop(self) -> None:
        self._stopped = True
        self.connection.ioloop.stop()

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._failed)
        self._ready(channel)

    def _failed(self, _: object, error: BaseException) -> None:
        if not self._stopped:
            end_with(NAME, f"the connection failed: {error!r}")  # pika would go on after an exception


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
                raise Failure("the broker rejected a message")
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


def produce(run: Run) -> None:
    (produce_unconfirmed if run.ack == "none" else produce_confirmed)(run)


def consume(run: Run) -> None:
    connection, waiting = pika.BlockingConnection(parameters(run)), list[bytes]()

    def on_message(channel: Any, _method: object, _properties: object, body: bytes) -> None:
        waiting.append(body)
        if len(waiting) >= CHUNK_COUNT or run.count + len(waiting) >= run.messages:
            run.receive(waiting)
            waiting.clear()
            if run.count == run.messages:
                run.end()
                channel.stop_consuming()

    channel = connection.channel()
    run.begin()
    channel.basic_consume(run.topic, on_message, auto_ack=True)
    channel.start_consuming()


def latency(run: Run) -> None:
    """Measure latency over two connections, without confirms, because BlockingConnection waits for each one."""
    sending, reading = (pika.BlockingConnection(parameters(run)).channel() for _ in range(2))
    sending.queue_declare(run.topic, durable=True)

    def on_message(channel: Any, _method: object, _properties: object, body: bytes) -> None:
        run.receive_stamped(body)
        if run.received == run.total:
            channel.stop_consuming()

    reading.basic_consume(run.topic, on_message, auto_ack=True)
    run.latency(
        lambda payload: sending.basic_publish("", run.topic, payload, PROPERTIES), None, reading.start_consuming
    )


def main() -> None:
    run = Run.open(NAME, acks=("one", "none", "disk"))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"pika {pika.__version__}")


if __name__ == "__main__":
    main()
