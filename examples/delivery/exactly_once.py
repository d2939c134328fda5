"""Orders to invoices, exactly once: work and offsets in one transaction. A crash undoes both, or neither.

python examples/delivery/exactly_once.py [BOOTSTRAP]
"""

import os
import signal
import sys

from kafkalite.client import READ_COMMITTED, Client


def main(bootstrap: str) -> None:
    with (
        Client(bootstrap) as client,
        client.producer(transactional_id="invoices-1") as producer,
        client.group_reader(
            "exactly-once", "orders", reset="earliest", instance_id="worker-1", isolation=READ_COMMITTED
        ) as reader,
    ):
        producer.init_transactions()  # ends what an elder run of this program has left open
        for chunk in reader:
            with producer.transaction():
                producer.send("invoices-exactly-once", 0, chunk.columns)
                producer.send_offsets_to_transaction(reader.positions, reader.group_metadata)
                producer.flush()
                moment("written, not committed")
            moment("processed")


def moment(name: str) -> None:
    """Says where the program is; stays there when PAUSE_AT asks for it, so that somebody can end it there."""
    print(name, flush=True)
    if os.environ.get("PAUSE_AT") == name:
        signal.pause()


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
    except KeyboardInterrupt:
        sys.exit(130)
