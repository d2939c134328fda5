"""Orders to invoices, at least once: work, then commit. A crash between the two does the work again.

python examples/delivery/at_least_once.py [BOOTSTRAP]
"""

import os
import signal
import sys

from kafkalite.client import Client


def main(bootstrap: str) -> None:
    with (
        Client(bootstrap) as client,
        client.producer() as producer,
        client.group_reader("at-least-once", "orders", reset="earliest", instance_id="worker-1") as reader,
    ):
        for chunk in reader:
            producer.send("invoices-at-least-once", 0, chunk.columns)
            producer.flush()
            moment("processed, not committed")
            reader.commit()
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
