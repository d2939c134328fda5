"""Loads a topic with the native engine, and dies (SIGKILL): at a step, or after a number of microseconds.

    python -m tests.kit.processes.native_loader steps|times SERVERS TOPIC LETTER_TOPIC TARGET NAMES LAYOUT

Steps are those of the target's storage, of the files that are being written, of the record batches that are read and of
the producer of dead letters. NAMES gets the name of each step at which it died. A value that begins with "bad" is a
dead letter, and the others have a field `kind`. LAYOUT is hour, or kind for folders by this field.
`tests.kit.processes.dying` has the other side.
"""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.client import Client, Producer
from kafkalite.load import native, parquet
from kafkalite.load.manifest import Target
from kafkalite.load.places import storage_of
from kafkalite.load.storage import Storage
from tests.kit.fakes.dying_storage import DyingStorage
from tests.kit.processes.dying import serve

FILE_SIZE = 20_000
NEVER = -1
KINDS = 3


class MarkedValues:
    """Values that are bad by their first bytes."""

    def __init__(self) -> None:
        self.aside = {"avro_error": "Bad"}
        self.aliases: dict[str, list[str]] = {}
        self.errors = "avro_error"

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        bad = pc.starts_with(batch.column("value").cast(pa.string()), "bad")
        kinds = [str(offset % KINDS) for offset in batch.column("offset").to_pylist()]
        batch = batch.append_column("decoded", pa.StructArray.from_arrays([pa.array(kinds)], ["kind"]))
        return batch.append_column("avro_error", pc.if_else(bad, "it is bad", pa.scalar(None, pa.string())))


def load(
    servers: str, topic: str, letter_topic: str, storage: Storage, layout: str, *, commit_size: int = 1 << 30
) -> None:
    with Client(servers, retry_timeout_s=60) as client:
        native.load(
            Target(storage),
            client=client,
            topics=[topic],
            values=MarkedValues(),
            dead_letters=letter_topic,
            file_size=FILE_SIZE,
            commit_size=commit_size,
            partition_by=layout,
            flatten="_",
        )


def count_producer_steps(step: Callable[[str], None]) -> None:
    """Make the calls of every producer steps."""

    def counting(name: str) -> None:
        real = getattr(Producer, name)

        def counted(producer: Producer, *given: object, **named: object) -> object:
            step(f"before {name}")
            answer = real(producer, *given, **named)
            step(f"after {name}")
            return answer

        setattr(Producer, name, counted)

    for name in ("init_transactions", "begin_transaction", "send", "commit_transaction"):
        counting(name)


def end_at(servers: str, topic: str, letter_topic: str, place: str, names: str, layout: str, last_step: int) -> None:
    """See the module."""
    target = DyingStorage(storage_of(place), last_step, Path(names))

    class Staging(DyingStorage):
        """Of files that are being written: counts with the target."""

        def step(self, name: str = "") -> None:
            target.step(f"{name} in staging")

    count_producer_steps(target.step)
    parquet.storage_of = lambda path: Staging(storage_of(path), NEVER)
    records_of = native.records_of

    def counted_batches(*given: Any) -> Any:
        for batch in records_of(*given):
            target.step("before a record batch")
            yield batch
        target.step("after all record batches")

    native.records_of = counted_batches
    load(servers, topic, letter_topic, target, layout)


def end_after(servers: str, topic: str, letter_topic: str, place: str, _names: str, layout: str, delay_us: int) -> None:
    """See the module."""
    loader = os.getpid()
    killer = os.fork()
    if not killer:
        time.sleep(delay_us / 1_000_000)
        os.kill(loader, signal.SIGKILL)
        os._exit(0)
    try:
        load(servers, topic, letter_topic, storage_of(place), layout, commit_size=20_000)
    finally:
        os.kill(killer, signal.SIGKILL)
        os.waitpid(killer, 0)


if __name__ == "__main__":
    serve(functools.partial(end_at if sys.argv[1] == "steps" else end_after, *sys.argv[2:]))
