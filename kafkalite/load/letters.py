"""Write the undecodable records of a load to a dead-letter topic, exactly once.

    1. task      stores its undecodable rows in a file in staging
    2. driver    stores the end offsets of the dead-letter topic in a file in staging, too
    3. commit    moves these files to the folder _letters/ID, and publishes them together with the load's data files
    4. send      sends all letters (dead letters) of this folder in one transaction
    5. remove    removes the files of the folder

Read-committed consumers see each letter once. If a load ends between steps 3 and 5, the next load finds the files. It
searches the dead-letter topic from the stored end offsets. If the letters are not there, it sends them.

Thread rule: a BadRows belongs to its task. The other functions run on the thread of the Client; all but `prepare` need
the lock of the directory.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client import ClientError
from kafkalite.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from kafkalite.failures.adapters.columnar import columns_of, messages_of
from kafkalite.failures.committed_reading import decided
from kafkalite.failures.events import Failure, FailureKind, Goal, Letter, Message, Put
from kafkalite.failures.headers import FIRST, GROUP, REDRIVEN, letter_of, number_of, rendered
from kafkalite.failures.topics import DEAD_LETTER_SETTINGS, size_max
from kafkalite.load.storage import LoadError
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite.client import Client
    from kafkalite.load.storage import Storage

LETTERS: Final = "_letters"
"""The folder of letters that are published, but may not have been sent yet. It has a folder for each change."""
ABOUT: Final = "about.json"
"""File in each of these: the topic, its end offsets, and the names of the letter files."""
GROUP_NAME: Final = "kafkalite-load"
"""The default group of the letters."""
TRANSACTION_TIMEOUT_S: Final = 60.0
SEND_MAX: Final = 500
"""Letters per send."""
OVERHEAD: Final = 1024
"""Maximum bytes that a batch adds to a record."""


class LetterTopic(NamedTuple):
    """The dead-letter topic of a load, and the consumer group that the dead letters name."""

    name: str
    group: str = GROUP_NAME


def prepare(client: Client, topic: LetterTopic) -> None:
    """Create the dead-letter topic if it does not exist.

    It gets unlimited retention and LogAppendTime, like the topics of `kafkalite.failures`.
    """
    try:
        client.topic(topic.name)
    except UnknownTopicOrPartition:
        with contextlib.suppress(TopicAlreadyExists):
            client.admin.create_topic(topic.name, 1, configs=DEAD_LETTER_SETTINGS)


def publish_with(
    storage: Storage, client: Client, topic: LetterTopic, files: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """Prepare the dead letters of a commit. Return the folder to publish, and its files: new path → current path.

    `files` are the files of bad rows that tasks have written. The file `about.json` is moved last, so a folder without
    it was not published.
    """
    folder = f"{LETTERS}/{uuid.uuid4().hex}"
    storage.make_folder(folder)
    beside = files[0].rpartition("/")[0]
    ends = {str(number): client.end_offset(topic.name, number) for number in client.partitions(topic.name)}
    staged = {f"{folder}/{place.rpartition('/')[2]}": place for place in files}
    about = {"topic": topic.name, "group": topic.group, "ends": ends, "files": sorted(staged)}
    storage.put(f"{beside}/{ABOUT}", json.dumps(about).encode())
    return folder, {**staged, f"{folder}/{ABOUT}": f"{beside}/{ABOUT}"}


def deliver(storage: Storage, client: Client, fresh: str | None = None) -> int:
    """Send all published dead letters that were not sent yet. Return their number.

    `fresh` is a folder whose letters were certainly not sent, so the topic is not searched for them. On LoadError, the
    remaining letters are kept, and the next load sends them.
    """
    count = 0
    for name in storage.names(LETTERS):
        folder = f"{LETTERS}/{name}"
        if ABOUT not in storage.names(folder):
            storage.remove_folder(folder)
            continue
        about = json.loads(storage.read(f"{folder}/{ABOUT}"))
        try:
            count += _send(storage, client, name, about, fresh=folder == fresh)
        except (KafkaError, ClientError, UnknownTopicOrPartition) as error:
            raise LoadError(
                f"cannot send the dead letters of {name} to {about['topic']} ({error}); the next load retries"
            ) from error
        storage.remove(f"{folder}/{ABOUT}")
        storage.remove_folder(folder)
    return count


def _send(storage: Storage, client: Client, name: str, about: Mapping[str, Any], *, fresh: bool) -> int:
    """Send the dead letters of a folder in one transaction. Return their number; 0 if they were sent before.

    Initializing the transactional id of the folder, `kafkalite.load.ID`, aborts an open transaction.
    """
    topic = LetterTopic(about["topic"], about["group"])
    prepare(client, topic)
    numbers = client.partitions(topic.name)
    room = size_max(client, topic.name) - OVERHEAD
    count = 0
    with client.producer(
        transactional_id=f"kafkalite.load.{name}", transaction_timeout_s=TRANSACTION_TIMEOUT_S
    ) as producer:
        producer.init_transactions()
        if not fresh and _was_sent(storage, client, about):
            return 0
        with producer.transaction():
            for messages in _rendered(storage, about, topic, room):
                for number in numbers:
                    chosen = [each for each in messages if each.partition % len(numbers) == numbers.index(number)]
                    if chosen:
                        producer.send(topic.name, number, columns_of(chosen))
                producer.flush()
                count += len(messages)
    return count


def _was_sent(storage: Storage, client: Client, about: Mapping[str, Any]) -> bool:
    """Return whether the dead-letter topic contains the first letter of a commit.

    The search starts at the end offsets that were stored with the letters.
    """
    first = next(_bad_records(storage, about["files"]), None)
    if first is None:
        return True
    message, _, _, failed_ms = first
    for number in client.partitions(about["topic"]):
        begin = max(int(about["ends"].get(str(number), 0)), client.start_offset(about["topic"], number))
        place = TopicPartition(about["topic"], number)
        end = client.end_offset(*place)
        if begin > end:
            begin = client.start_offset(*place)  # the topic was recreated
        for chunk in decided(client, {place: begin}, {place: end}):
            for there in messages_of(chunk):
                letter = letter_of(there.headers)
                headers = dict(there.headers)
                if (
                    letter is not None
                    and (letter.partition, letter.offset)
                    == (TopicPartition(message.topic, message.partition), message.offset)
                    and (headers.get(FIRST), headers.get(GROUP)) == (b"%d" % failed_ms, about["group"].encode())
                ):
                    return True
    return False


def _rendered(storage: Storage, about: Mapping[str, Any], topic: LetterTopic, room: int) -> Iterator[list[Message]]:
    """Yield the dead letters as messages, in lists of at most SEND_MAX."""
    batch: list[Message] = []
    for message, exception, error, failed_ms in _bad_records(storage, about["files"]):
        letter = Letter(
            "",
            topic.group,
            TopicPartition(message.topic, message.partition),
            message.offset,
            attempt=1,
            first=failed_ms,
            rounds=max(number_of(dict(message.headers).get(REDRIVEN)) or 0, 0),
        )
        failure = Failure(FailureKind.FATAL, exception, text=error)
        put = Put(Goal.DEAD, topic.name, message.partition, message, letter, failure, failed_ms)
        batch.append(rendered(put, room, ("spring",), None))
        if len(batch) == SEND_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


# --- files of bad rows ------------------------------------------------------------------------------------------------


class BadRows:
    """A file of the rows that one task could not decode, in Arrow's stream format. The first row creates it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.name = f"letters-{uuid.uuid4().hex[:16]}.arrows"
        self._sink: Any = None
        self._writer: Any = None

    def add(self, batch: Any, exception: str, error_column: str) -> None:
        """Add the rows of a batch, with the exception's class name.

        The column `error_column` has the reason of each row.

        Rows must have topic, partition and offset. Missing columns of a record are written as null.
        """
        import pyarrow as pa

        now_ms = time.time_ns() // 1_000_000
        count = batch.num_rows
        own = {name: _column(batch, name, kind) for name, kind in _schema_of(pa).items()}
        own["exception"] = pa.array([exception] * count, pa.string())
        own["error"] = batch.column(error_column).cast(pa.string())
        own["failed_ms"] = pa.array([now_ms] * count, pa.int64())
        made = pa.RecordBatch.from_arrays(list(own.values()), names=list(own))
        if self._writer is None:
            self._sink = self._storage.create(self.name)
            self._writer = pa.ipc.new_stream(self._sink, made.schema)
        self._writer.write_batch(made)

    def close(self) -> str | None:
        """Sync the file to disk and return its full path; None if there were no bad rows."""
        if self._writer is None:
            return None
        self._writer.close()
        self._storage.finish(self._sink)
        return self._storage.place(self.name)

    def abandon(self) -> None:
        """Remove the file, because the task failed."""
        if self._sink is not None:
            self._sink.close()
            self._storage.remove(self.name)


def _schema_of(pa: Any) -> dict[str, Any]:
    """Return the columns of a record in a file of bad rows, with their Arrow types."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(header),
    }


def _column(batch: Any, name: str, kind: Any) -> Any:
    """Return a column of a batch, cast to a type; nulls if the batch lacks the column."""
    import pyarrow as pa

    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return batch.column(name).cast(kind)


def _bad_records(storage: Storage, files: Sequence[str]) -> Iterator[tuple[Message, str, str, int]]:
    """Yield (record, exception, reason, time in ms) for each row in these files of bad rows."""
    import pyarrow as pa

    for name in files:
        with storage.open(name) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                times = batch.column("timestamp").cast(pa.int64())
                for row, time_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), times.to_pylist(), strict=True):
                    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
                    message = Message(
                        row["topic"],
                        row["partition"],
                        row["offset"],
                        -1 if time_us is None else time_us // 1000,
                        row["key"],
                        row["value"],
                        headers,
                        row["timestampType"] or 0,
                    )
                    yield message, row["exception"], row["error"], row["failed_ms"]
