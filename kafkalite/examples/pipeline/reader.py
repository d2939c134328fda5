"""Run a consumer group of the example: read visits, commit, and report the processed ranges to the audit as a stage.

  python -m kafkalite.examples.pipeline.reader -b HOST:PORT --count 9000

Ends when its group has committed --count visits, or on SIGTERM. Prints the number of visits as JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import TYPE_CHECKING

from kafkalite.audit import AuditedGroupReader
from kafkalite.client import Client
from kafkalite.examples.pipeline.visits import READERS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--count", type=int, required=True)
    parsed = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    taken = 0
    with (
        Client(parsed.bootstrap_server) as client,
        AuditedGroupReader(client, READERS, TOPIC, reset="earliest") as reader,
    ):
        while taken < parsed.count and not stop.is_set():
            reader.poll(0.5)
            reader.commit()
            taken = sum(row.offset for row in client.groups.committed(READERS).values())
    json.dump({"taken": taken}, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
