"""100,000 records of two schemas with one in a thousand bad: all good ones decoded, all bad ones kept as they were."""

import random

import numpy as np
import pytest

from kafkalite.avro import AvroDecoder, AvroEncoder, RegistryClient
from kafkalite.client import Client
from kafkalite.failures import BatchLetters, Ledger
from kafkalite.failures.adapters.columnar import message_of
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns

pytestmark = pytest.mark.integration

COUNT = 100_000
BAD_EVERY = 1000
OLD = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"gone","type":"string"}]}'
NEW = (
    '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)


def garbage(dice: random.Random, good: bytes) -> bytes:
    return dice.choice(
        [
            good[: dice.randrange(len(good))],
            good + b"!",
            b"\1" + good[1:],
            b"\0\x7f\xff\xff\xff" + good[5:],
            dice.randbytes(dice.randrange(1, 4)),
        ]
    )


def encoded(registry: RegistryClient) -> list[bytes]:
    import pyarrow as pa

    numbers = pa.array(range(COUNT))
    texts = pa.array([f"n{number % 100}" for number in range(COUNT)])
    rows = []
    for schema, name in ((OLD, "gone"), (NEW, "note")):
        column = pa.StructArray.from_arrays([numbers, texts], ["id", name])
        rows.append(AvroEncoder(registry, "r", schema).encode(column).to_pylist())
    return [rows[number // 3 % 2][number] for number in range(COUNT)]


def test_every_good_record_is_decoded_and_every_bad_one_kept(kafka_broker, kafka_topic: str) -> None:
    dice = random.Random(7)
    bootstrap, group = kafka_broker.bootstrap_servers, "readers"
    with (
        RegistryServer(bootstrap, port=0, topic=f"schemas-{kafka_topic}"[:249]) as server,
        RegistryClient(server.url) as registry,
        Client(bootstrap) as client,
    ):
        values = encoded(registry)
        bad = set(range(dice.randrange(BAD_EVERY), COUNT, BAD_EVERY))
        values = [garbage(dice, value) if row in bad else value for row, value in enumerate(values)]
        headers = HeaderColumns.from_items([(("h", str(row).encode()), ("n", None)) for row in range(COUNT)])
        keys = BytesColumn.from_items([b"k%d" % row for row in range(COUNT)])
        stamps = np.arange(COUNT, dtype=np.int64) + 1_700_000_000_000
        sent = RecordColumns(np.empty(0, np.int64), stamps, keys, BytesColumn.from_items(values), headers)
        client.produce(kafka_topic, 0, sent)
        letters = BatchLetters(client, group, [kafka_topic])
        decoder = AvroDecoder.of_subject(registry, "r", mode="dlq")
        good: dict[int, object] = {}
        producer = client.producer(transactional_id=group)
        producer.init_transactions()
        for chunk in client.read(kafka_topic, 0):
            decoded = decoder.decode(chunk.columns.values)
            with producer.transaction():
                assert letters.send(producer, chunk.columns, decoded, chunk.partition) == len(decoded.failed)
            rows = zip(chunk.columns.offsets.tolist(), decoded.values.to_pylist(), strict=True)
            good |= {offset: row for offset, row in rows if row is not None}
        assert good == {
            row: {"id": row, "note": f"n{row % 100}" if row // 3 % 2 else None}
            for row in range(COUNT)
            if row not in bad
        }
        producer.close()
        check_letters(client, group, TopicPartition(kafka_topic, 0), sent, sorted(bad))


def check_letters(client: Client, group: str, source: TopicPartition, sent: RecordColumns, bad: list[int]) -> None:
    box, found = LetterBox(client, group), []
    for entry in box.entries():
        letter, original = entry.found.letter, box.original(entry)
        assert (entry.state, letter.partition, letter.group) == ("dead", source, group)
        assert entry.found.reason.text
        row = letter.offset
        assert (original.key, original.value) == (sent.keys[row], sent.values[row])
        assert dict(entry.message.headers)["dlq.timestamp"] == b"%d" % sent.timestamps[row]
        assert original.headers == (("h", b"%d" % row), ("n", None))
        found.append(row)
    assert found == bad
    ledger = Ledger(client, group)
    ledger.refresh()
    assert {where: row.state for where, row in ledger.records()} == {f"{source}-{row}": State.DEAD for row in bad}
    assert box.redrive(lambda entry: entry.found.letter.offset == bad[0]).sent == 1
    (back,) = [
        message_of(chunk.columns, chunk.partition, row)
        for chunk in client.read(f"retry.{group}.{source.topic}.0s", source.partition)
        for row in range(len(chunk.columns))
    ]
    assert (back.key, back.value) == (sent.keys[bad[0]], sent.values[bad[0]])
