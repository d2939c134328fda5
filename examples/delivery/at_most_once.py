"""Orders to invoices, at most once: commit, then work. A crash between the two loses what was committed.

python examples/delivery/at_most_once.py [BOOTSTRAP]
"""

import os
import signal
import sys

from kafkalite.client import Client


def main(bootstrap: str) -> None:
    with (
        Client(bootstrap) as client,
        client.producer() as producer,
        client.group_reader("at-most-once", "orders", reset="earliest", instance_id="worker-1") as reader,
    ):
        for chunk in reader:
            reader.commit()
            moment("committed, not processed")
            producer.send("invoices-at-most-once", 0, chunk.columns)
            producer.flush()
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
