"""A consumer of a 0.7 group in a separate process: `python -m tests.kit.processes.classic_member JSON`.

Writes down what happens to it, a line each, straight into a file, so that kill -9 loses nothing it had said:

    J <us>              it has joined          M <us> <stream> <name>   a message was handed out
    S <us> <us>         it did not run: since when, for how long (stopped by a signal, or no processor to be had)
    E <us> <text>       a stream raised        X <us>                   it ended cleanly

Times are microseconds of the wall clock, which ZooKeeper's log has too. It ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from kafkalite.classic import Consumer, ConsumerConfig
from kafkalite.classic.errors import ClassicError
from kafkalite.classic.handlers import PayloadDecoder
from kafkalite.errors import StartupError
from kafkalite.zookeeper.session import ZooKeeperError

TICK_S = 0.02
STALL_S = 0.1
"""A pause shorter than this is a busy machine's ordinary one."""
NOT_JOINED = 3
STREAM_RAISED = 4


def now_us() -> int:
    return time.time_ns() // 1000


class Notes:
    """The file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, *values: object) -> None:
        os.write(self._file, (" ".join((kind, *map(str, values))) + "\n").encode())


def watch_the_clock(notes: Notes) -> None:
    """Writes down every stretch in which this process did not run."""
    last = time.monotonic()
    while True:
        time.sleep(TICK_S)
        here = time.monotonic()
        if here - last > STALL_S:
            stalled_us = int((here - last) * 1_000_000)
            notes.write("S", now_us() - stalled_us, stalled_us)
        last = here


def read(stream: Any, number: int, notes: Notes, pace_s: float) -> None:
    try:
        for payload, _topic in stream:
            notes.write("M", now_us(), number, payload[: payload.index(b"|")].decode())
            if pace_s:
                time.sleep(pace_s)
    except ClassicError as error:
        notes.write("E", now_us(), repr(error))
        os._exit(STREAM_RAISED)


def main() -> int:
    given = json.loads(sys.argv[1])
    notes = Notes(given["notes"])
    threading.Thread(target=watch_the_clock, args=(notes,), daemon=True).start()
    try:
        connector = Consumer.create(ConsumerConfig(**given["config"]))
        streams = connector.create_message_streams({given["topic"]: given["streams"]}, PayloadDecoder())[given["topic"]]
    except (ClassicError, StartupError, *ZooKeeperError) as error:
        sys.stderr.write(f"not joined: {error!r}\n")
        return NOT_JOINED
    notes.write("J", now_us())
    threads = [
        threading.Thread(target=read, args=(stream, number, notes, given["pace_s"]))
        for number, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    connector.shutdown()
    for thread in threads:
        thread.join()
    notes.write("X", now_us())
    return 0


if __name__ == "__main__":
    sys.exit(main())
