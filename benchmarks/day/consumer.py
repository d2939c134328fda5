"""Read the topic as a consumer group that reports its progress, and discard the messages.

python -m benchmarks.day.consumer --bootstrap HOST:PORT
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from typing import Final

from benchmarks.day.shape import CONSUMER, TOPIC
from kafkalite.audit import AuditedGroupReader
from kafkalite.client import Client

COMMIT_S: Final = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with (
        Client(arguments.bootstrap) as client,
        AuditedGroupReader(client, CONSUMER, TOPIC, stage=CONSUMER, reset="earliest", isolation=1) as reader,
    ):
        committed = time.monotonic()
        while not stop.is_set():
            reader.poll(0.5)
            if time.monotonic() - committed > COMMIT_S:
                reader.commit()
                committed = time.monotonic()
        reader.commit()


if __name__ == "__main__":
    main()
