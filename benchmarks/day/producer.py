"""Send messages as fast as the broker accepts them, marked for the audit and counted, with kafkalite's producer.

  python -m benchmarks.day.producer --bootstrap HOST:PORT --count N --rate N --folder DIR

It pauses while the file DIR/hold exists. DIR/sent.json has the number of acknowledged messages, which is exact at the
end. The end comes after N messages or by SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.day.shape import PARTITIONS, TOPIC, VALUE_SIZE
from kafkalite.audit import AuditedProducer
from kafkalite.client import Client
from kafkalite.wire.record.columns import BytesColumn, RecordColumns

BATCH: Final = 20_000
"""Messages of one call; some 5 MB."""
POOL: Final = 50
"""Batches of different values, sent in turn."""
TOLD_S: Final = 1.0
PATHS: Final = ("/", "/about", "/jobs", "/search?q=kafka", "/profile/view", "/inbox", "/feed/update", "/static/app.js")


def values(chance: np.random.Generator) -> BytesColumn:
    """Return lines of a web server's log, 200 bytes each."""
    pages, visitors, took = (chance.integers(0, high, BATCH).tolist() for high in (len(PATHS), 10**7, 2000))
    lines = [
        f'{{"visitor": {visitor:08d}, "page": "{PATHS[page]}", "status": 200, "took_ms": {ms}, "agent": "Mozilla/5.0 '
        f'(X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0"}}'.encode().ljust(VALUE_SIZE)
        for page, visitor, ms in zip(pages, visitors, took, strict=True)
    ]
    assert max(map(len, lines)) == VALUE_SIZE, "a line has its size"
    return BytesColumn.from_items(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="messages a second, at most")
    parser.add_argument("--window", type=float, default=60.0, help="seconds of the audit's windows")
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    chance = np.random.default_rng(7)
    pool = [values(chance) for _ in range(POOL)]
    nothing = np.empty(0, np.int64)
    absent = BytesColumn(b"", np.zeros(BATCH, np.int64), np.zeros(BATCH, np.int64), np.ones(BATCH, np.uint8))
    hold, sent_file = arguments.folder / "hold", arguments.folder / "sent.json"
    sent, held_s, began, told = 0, 0.0, time.monotonic(), 0.0

    def tell() -> None:
        temporary = sent_file.with_suffix(".tmp")
        temporary.write_text(json.dumps({"sent": sent, "held_s": held_s}))
        temporary.rename(sent_file)

    with (
        Client(arguments.bootstrap) as client,
        AuditedProducer(client, server="producer", window_s=arguments.window) as producer,
    ):
        turn = 0
        while sent < arguments.count and not stop.is_set():
            ahead_s = held_s + sent / arguments.rate - (time.monotonic() - began)
            if hold.exists() or ahead_s > 0:
                pause_s = 0.2 if ahead_s <= 0 else min(ahead_s, 0.2)
                stop.wait(pause_s)
                held_s += pause_s if ahead_s <= 0 else 0.0
                continue
            count = min(BATCH, arguments.count - sent)
            batch = RecordColumns(nothing, nothing, absent[:count], pool[turn % POOL][:count])
            producer.send(TOPIC, turn % PARTITIONS, batch)
            sent += count
            turn += 1
            if time.monotonic() - told > TOLD_S:
                producer.flush()
                tell()
                told = time.monotonic()
        producer.flush()
        tell()


if __name__ == "__main__":
    main()
