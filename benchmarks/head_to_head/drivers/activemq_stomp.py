"""Load driver activemq-stomp: ActiveMQ's STOMP port through stomp.py, with persistent messages.

The queue has the topic's name. STOMP has no batches. With an acknowledgement, each message requests a receipt, and at
most batch * in-flight receipts are outstanding. Without, nothing is answered. Consuming prefetches 10,000 messages and
acknowledges nothing (ack:auto).
"""

from __future__ import annotations

import threading

import stomp

from benchmarks.head_to_head.drivers.common import Run, end_with, guarded

NAME = "activemq-stomp"
PREFETCH = 10_000
CHUNK_COUNT = 100
CONTENT = "application/octet-stream"


class Listener(stomp.ConnectionListener):
    """Ends the program on an error."""

    def on_error(self, frame: stomp.utils.Frame) -> None:
        end_with(NAME, f"the broker reported an error: {frame.headers.get('message', frame.body)}")

    def on_disconnected(self) -> None:
        end_with(NAME, "the connection was lost")


class Receipts(Listener):
    """Counts receipts, and limits the number of outstanding ones."""

    def __init__(self, run: Run, window: int) -> None:
        self._run = run
        self.window = threading.Semaphore(window)
        self.done = threading.Event()
        self.count = 0

    def on_receipt(self, _frame: stomp.utils.Frame) -> None:
        self.count += 1
        if self._run.mode == "produce":
            self._run.advance(self.count)
        self.window.release()
        if self.count == self._run.messages:
            self.done.set()


def connect(run: Run, listener: Listener) -> stomp.Connection12:
    connection = stomp.Connection12([(run.host, run.port)], auto_content_length=True, auto_decode=False)
    connection.set_listener("", listener)
    connection.connect(wait=True)
    return connection


def headers(run: Run) -> dict[str, str]:
    return {"persistent": "true"} if run.ack == "none" else {"persistent": "true", "receipt": "r"}


def produce(run: Run) -> None:
    receipts = Receipts(run, run.window)
    connection, payload, sent_with = connect(run, receipts), run.payload(), headers(run)
    destination, acked = f"/queue/{run.topic}", run.ack != "none"
    run.begin()
    for sent in range(1, run.messages + 1):
        if acked:
            receipts.window.acquire()
        connection.send(destination, payload, content_type=CONTENT, **sent_with)
        if not acked and (sent % CHUNK_COUNT == 0 or sent == run.messages):
            run.advance(sent)
    if acked:
        receipts.done.wait()
    run.end()
    connection.remove_listener("")
    connection.disconnect("last")  # which waits for its receipt: all came over


class Messages(Listener):
    """Receives messages, and reports the last one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.done = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        guarded(NAME, lambda: self._take(frame.body))

    def _take(self, body: bytes) -> None:
        run = self._run
        if run.mode == "latency":
            run.receive_stamped(body)
        else:
            run.receive([body])
        if run.received == run.total or run.count == run.messages:
            self.done.set()


def subscribe(run: Run, connection: stomp.Connection12) -> None:
    sizes = {"activemq.prefetchSize": str(PREFETCH)}
    connection.subscribe(f"/queue/{run.topic}", id="1", ack="auto", headers=sizes)


def consume(run: Run) -> None:
    messages = Messages(run)
    connection = connect(run, messages)
    run.begin()
    subscribe(run, connection)
    messages.done.wait()
    run.end()


def latency(run: Run) -> None:
    receipts, messages = Receipts(run, 1), Messages(run)
    sending, reading = connect(run, receipts), connect(run, messages)
    subscribe(run, reading)
    destination, sent_with = f"/queue/{run.topic}", headers(run)
    run.latency(
        lambda payload: sending.send(destination, payload, content_type=CONTENT, **sent_with), None, messages.done.wait
    )


def main() -> None:
    run = Run.open(NAME, acks=("one", "none", "disk"))
    guarded(NAME, lambda: {"produce": produce, "consume": consume, "latency": latency}[run.mode](run))
    run.report(f"stomp.py {stomp.__version__}")


if __name__ == "__main__":
    main()
