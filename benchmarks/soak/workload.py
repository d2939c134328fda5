"""Generate the load of a soak test: everything whose state could accumulate is created and removed.

  python -m benchmarks.soak.workload --bootstrap HOST:PORT --folder DIR --run NUMBER

Each thread has its own clients and a modest rate. The load is records with acks=all, transactions that commit and
abort, topics that are created and deleted, groups that join, read, commit and are deleted, and settings that change.
After a failed request, because the broker was killed, a thread starts again with new clients.

DIR/acknowledged.txt has one line per acknowledged record or transaction, and DIR/counts.json has the counts. SIGTERM
ends it in order.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.client import Client, ClientError
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS: Final = "soak.records"
TRANSACTIONS: Final = "soak.transactions"
PARTITIONS: Final = 4
BATCH: Final = 20
PAUSE_S: Final = 0.1
AGAIN_S: Final = 1.0
IDS: Final = 500
"""Transactional ids, group ids and topic names that are used in turn; each is used again after so many others."""


class Workload:
    """The threads and their shared state: the counts and the file of acknowledgements."""

    def __init__(self, bootstrap: str, folder: Path, run: int) -> None:
        self.bootstrap = bootstrap
        self.run = run
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._lock = threading.Lock()
        self._acknowledged = (folder / "acknowledged.txt").open("a", encoding="ascii")

    def note(self, kind: str, *lines: str) -> None:
        """Count an operation, and write down what was acknowledged with it."""
        with self._lock:
            self.counts[kind] += max(len(lines), 1)
            if lines:
                self._acknowledged.write("".join(f"{line}\n" for line in lines))
                self._acknowledged.flush()

    def keep_on(self, work: Callable[[Client], None]) -> None:
        """Run `work` with a new client until the end, again after each failure."""
        while not self.stop.is_set():
            try:
                with Client(self.bootstrap) as client:
                    work(client)
            except (ClientError, KafkaError, OSError) as error:
                print(f"{work.__name__}: {error!r}", file=sys.stderr, flush=True)
                self.note("failures")
                self.stop.wait(AGAIN_S)

    def produce(self, client: Client) -> None:
        """Send records with acks=all. The program never sends a value twice."""
        with client.producer() as producer:
            while not self.stop.wait(PAUSE_S):
                first = self.counts["records sent"]
                self.counts["records sent"] += BATCH
                values = [f"{self.run}:{first + number}" for number in range(BATCH)]
                producer.send(RECORDS, (first // BATCH) % PARTITIONS, [value.encode() for value in values])
                producer.flush()
                self.note("records", *(f"r {value}" for value in values))

    def transact(self, client: Client) -> None:
        """Commit one transaction and abort the next, under ids that are reused."""
        number = self.counts["transactions begun"]
        while not self.stop.wait(PAUSE_S):
            number += 1
            self.counts["transactions begun"] = number
            with client.producer(transactional_id=f"soak-{number % IDS}") as producer:
                for commits in (True, False):
                    producer.begin_transaction()
                    word = f"{self.run}:{number}" if commits else "aborted"
                    producer.send(TRANSACTIONS, number % PARTITIONS, [word.encode()])
                    producer.flush()
                    if commits:
                        producer.commit_transaction()
                        self.note("transactions", f"t {word}")
                    else:
                        producer.abort_transaction()
                        self.note("aborts")

    def change_topics(self, client: Client) -> None:
        """Create topics, write a record to each, and delete them."""
        number = self.counts["topics"]
        while not self.stop.wait(PAUSE_S):
            number += 1
            name = f"soak.short-{self.run}-{number}"
            client.admin.create_topic(name, 1)
            client.produce(name, 0, [b"x"])
            client.admin.delete_topic(name)
            self.note("topics")

    def change_groups(self, client: Client) -> None:
        """Join groups, read and commit, and delete the groups."""
        number = self.counts["groups"]
        while not self.stop.wait(PAUSE_S):
            number += 1
            name = f"soak.group-{self.run}-{number}"
            with client.group_reader(name, [RECORDS], reset="latest") as reader:
                reader.poll(timeout_s=1.0)
                reader.commit()
            client.groups.delete(name)
            self.note("groups")

    def change_settings(self, client: Client) -> None:
        """Change a setting of a topic and one of the broker, back and forth."""
        number, node = 0, client.brokers()[0].node_id
        while not self.stop.wait(10 * PAUSE_S):
            number += 1
            client.admin.alter_topic_configs(RECORDS, {"retention.ms": str(3_600_000 + number % 2)})
            client.admin.alter_broker_configs(node, {"log.cleaner.threads": str(1 + number % 2)})
            self.note("settings")

    def tell(self) -> None:
        """Write the counts every second."""
        while True:
            ended = self.stop.wait(1.0)
            temporary = self._folder / "counts.tmp"
            temporary.write_text(json.dumps(self.counts))
            temporary.rename(self._folder / "counts.json")
            if ended:
                return

    def work(self) -> None:
        """Run all threads until SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        jobs = (self.produce, self.transact, self.change_topics, self.change_groups, self.change_settings)
        threads = [threading.Thread(target=self.keep_on, args=(job,)) for job in jobs]
        threads.append(threading.Thread(target=self.tell))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--run", type=int, required=True, help="its values say which run sent them")
    arguments = parser.parse_args()
    Workload(arguments.bootstrap, arguments.folder, arguments.run).work()


if __name__ == "__main__":
    main()
