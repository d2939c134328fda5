"""Faults of a replicated cluster under load: `python -m tests.cluster --faults 200 --brokers kafkalite`.

Three brokers (`kafkalite`, `java`: the control, `mixed`: two and one of Apache Kafka's, or `exchanged`: brokers of
Apache Kafka's that become the other kind in their directories, and back; `upgraded`: the same with kafkalite brokers of
an older commit), a controller of Apache Kafka's (or three), clients of librdkafka's, and faults one after the other:
kills, pauses, stops, links. All acknowledged records have to be there, once, in order; replicas have to be equal.
Results are in build/cluster/COMMIT-BROKERS, a line a series of faults; a run that was stopped (Ctrl-C, SIGTERM,
--minutes) judges what it has and continues there the next time. It ends with status 1 when it found something. Needs
root, for its own network namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time

from tests.cluster import campaign, links
from tests.cluster.faults import EXCHANGE, FAULTS
from tests.cluster.scene import CHEATS, EXCHANGED, KINDS_OF_BROKERS
from tests.kills.campaign import commit
from tests.kit.processes.broker import REPOSITORY
from tests.power import proof


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--brokers", choices=KINDS_OF_BROKERS, default="kafkalite")
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--kinds", default="", help="one series of these faults, with commas; nothing is written down")
    parser.add_argument(
        "--exchange",
        action="store_true",
        help="no faults: each of three brokers becomes kafkalite in its directory, one by one, then changes back; they "
        "are Apache Kafka's, or with --brokers upgraded those of an older commit",
    )
    parser.add_argument("--cheat", choices=CHEATS, default="", help="with --kinds: what has to be found")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no fault begins later")
    given = parser.parse_args(arguments)
    kinds = [kind for kind in given.kinds.split(",") if kind]
    if given.exchange:
        given.brokers = given.brokers if given.brokers in EXCHANGED else EXCHANGED[0]
        kinds = [EXCHANGE] * 2 * len(KINDS_OF_BROKERS[given.brokers])
    if unknown := sorted(set(kinds) - FAULTS.keys()):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(FAULTS)}")
    if why := links.missing():
        print(why, file=sys.stderr)
        return 2
    network = links.Links()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    until = time.monotonic() + given.minutes * 60
    tried = commit()  # it may have gone on when this ends
    rows_file = REPOSITORY / "build" / "cluster" / f"{tried}-{given.brokers}{'' if given.controllers == 1 else '-3'}"
    rows_file.parent.mkdir(parents=True, exist_ok=True)

    def stopping() -> bool:
        return stopped.is_set() or time.monotonic() > until

    def say(text: str) -> None:
        print(text, flush=True)

    with contextlib.closing(network):
        if kinds:
            row = campaign.one_series(given.brokers, kinds, network, say, stopping, given.cheat, given.controllers)
            return 1 if row.findings else 0
        rows = campaign.run(given.faults, given.brokers, rows_file, network, say, stopping, given.controllers)
    counts = campaign.summary(given.brokers + ("" if given.controllers == 1 else ", 3 controllers"), rows)
    print(counts)
    if not tried.endswith("+"):
        proof.add("cluster", tried, counts, f"0-{len(rows) - 1}")
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
