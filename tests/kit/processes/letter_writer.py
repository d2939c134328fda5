"""Publishes a change with bad records, and dies at each step of that: storage's or the producer's.

    python -m tests.kit.processes.letter_writer SERVERS LETTER_TOPIC TARGET

Each change has ten records of t-0, of which every third is bad. `tests.kit.processes.dying` has the other side.
"""

import functools
import sys

import pyarrow as pa

from kafkalite.client import Client, Producer
from kafkalite.load.letters import LetterTopic, deliver, prepare
from kafkalite.load.manifest import Target
from kafkalite.load.parquet import Writing
from kafkalite.load.places import storage_of
from tests.kit.fakes.dying_storage import DyingStorage
from tests.kit.harness.load_target import publish_batches
from tests.kit.processes.dying import serve

COUNT = 10
EXCEPTION = "kafkalite.avro.DecodeError"


def is_bad(offset: int) -> bool:
    return offset % 3 == 0


def rows(first: int) -> pa.RecordBatch:
    offsets = range(first, first + COUNT)
    headers = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    columns = {
        "topic": pa.array(["t"] * COUNT),
        "partition": pa.array([0] * COUNT, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_000_000 * offset for offset in offsets], pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * COUNT, pa.int32()),
        "key": pa.array([b"k%d" % offset for offset in offsets]),
        "value": pa.array([b"v%d" % offset for offset in offsets]),
        "headers": pa.array([[{"key": "h", "value": b"%d" % offset}] for offset in offsets], headers),
        "avro_error": pa.array(["it is bad" if is_bad(offset) else None for offset in offsets], pa.string()),
    }
    return pa.record_batch(columns)


def load(client: Client, topic: LetterTopic, target: Target, first: int) -> None:
    """As a load does it."""
    prepare(client, topic)
    with target.writing() as staging:
        deliver(target.storage, client)
        begin = max(target.state.positions.values(), default=first)
        writing = Writing(staging, "part", "zstd", 2**27, {}, False, {"avro_error": EXCEPTION})
        publish_batches(target, [rows(begin)], writing, (client, topic))


def end_at(servers: str, topic: str, place: str, last_step: int) -> None:
    storage = DyingStorage(storage_of(place), last_step)

    def counting(name: str) -> None:
        real = getattr(Producer, name)

        def counted(producer: Producer, *given: object, **named: object) -> object:
            storage.step()
            answer = real(producer, *given, **named)
            storage.step()
            return answer

        setattr(Producer, name, counted)

    for name in ("init_transactions", "begin_transaction", "send", "commit_transaction"):
        counting(name)
    with Client(servers, retry_timeout_s=60) as client:
        load(client, LetterTopic(topic), Target(storage), 0)


if __name__ == "__main__":
    serve(functools.partial(end_at, *sys.argv[1:]))
