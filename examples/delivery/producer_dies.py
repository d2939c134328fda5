"""Lines of a file to the topic `orders`, by a program that may be killed: it sends five, and notes how far it is.

python examples/delivery/producer_dies.py noted-first|sent-first|in-a-transaction FILE [BOOTSTRAP]

Where it is stands in FILE.position, or, with a transaction, in the topic `positions`, beside what was sent.
"""

import os
import signal
import sys
from pathlib import Path

from kafkalite.client import READ_COMMITTED, Client, Record

STEP = 5


def main(mode: str, name: str, bootstrap: str) -> None:
    lines = Path(name).read_bytes().splitlines()
    with Client(bootstrap) as client:
        {"noted-first": note_first, "sent-first": send_first, "in-a-transaction": in_a_transaction}[mode](
            client, lines, Path(f"{name}.position")
        )
    moment("all is sent")


def note_first(client: Client, lines: list[bytes], position: Path) -> None:
    with client.producer() as producer:
        for start in range(noted(position), len(lines), STEP):
            position.write_text(str(start + STEP))
            moment("noted, not sent")
            producer.send("orders", 0, lines[start : start + STEP])
            producer.flush()


def send_first(client: Client, lines: list[bytes], position: Path) -> None:
    with client.producer() as producer:
        for start in range(noted(position), len(lines), STEP):
            producer.send("orders", 0, lines[start : start + STEP])
            producer.flush()
            moment("sent, not noted")
            position.write_text(str(start + STEP))


def in_a_transaction(client: Client, lines: list[bytes], position: Path) -> None:
    key = position.name.encode()
    with client.producer(transactional_id=f"file-{position.name}") as producer:
        producer.init_transactions()  # ends what an elder run of this program has left open
        values = {
            record.key: record.value
            for chunk in client.read("positions", 0, isolation=READ_COMMITTED)
            for record in chunk.records()
        }
        for start in range(int(values.get(key) or 0), len(lines), STEP):
            with producer.transaction():
                producer.send("orders", 0, lines[start : start + STEP])
                producer.send("positions", 0, [Record(-1, -1, key, b"%d" % (start + STEP))])
                producer.flush()
                moment("sent, not committed")


def noted(position: Path) -> int:
    return int(position.read_text()) if position.exists() else 0


def moment(name: str) -> None:
    """Says where the program is; stays there when PAUSE_AT asks for it, so that somebody can end it there."""
    print(name, flush=True)
    if os.environ.get("PAUSE_AT") == name:
        signal.pause()


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1:9092")
    except KeyboardInterrupt:
        sys.exit(130)
