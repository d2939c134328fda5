"""The same three with confluent-kafka (`pip install confluent-kafka`), a record at a time.

python examples/delivery/confluent.py at-most-once|at-least-once|exactly-once [BOOTSTRAP]
"""

import os
import signal
import sys

from confluent_kafka import Consumer, Producer


def main(mode: str, bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": mode,
            "group.instance.id": "worker-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    exactly = {"transactional.id": "invoices-1"} if mode == "exactly-once" else {}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **exactly})
    if exactly:
        producer.init_transactions()  # ends what an elder run of this program has left open
    consumer.subscribe(["orders"])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        order = (f"invoices-{mode}", message.value(), message.key())
        if mode == "at-most-once":
            consumer.commit(message, asynchronous=False)
            moment("committed, not processed")
            producer.produce(*order)
            producer.flush()
        elif mode == "at-least-once":
            producer.produce(*order)
            producer.flush()
            moment("processed, not committed")
            consumer.commit(message, asynchronous=False)
        else:
            producer.begin_transaction()
            producer.produce(*order)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.flush()
            moment("written, not committed")
            producer.commit_transaction()
        moment("processed")


def moment(name: str) -> None:
    """Says where the program is; stays there when PAUSE_AT asks for it, so that somebody can end it there."""
    print(name, flush=True)
    if os.environ.get("PAUSE_AT") == name:
        signal.pause()


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9092")
    except KeyboardInterrupt:
        sys.exit(130)
