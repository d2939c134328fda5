"""100,000 records of two schemas with one in a thousand bad: all good ones decoded, all bad ones kept as they were."""

import random

import numpy as np
import pytest

from kafkalite.avro import AvroDecoder, AvroEncoder, RegistryClient
from kafkalite.avro.dead_letters import dead_letters, headers_of, restore
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.record.columns import BytesColumn, HeaderColumns, RecordColumns
from kafkalite.schema_registry.server import RegistryServer

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
    bootstrap, letters_topic = kafka_broker.bootstrap_servers, f"dlq-{kafka_topic}"[:249]
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
        client.admin.create_topic(letters_topic, 1)
        decoder = AvroDecoder.of_subject(registry, "r", mode="dlq")
        good: dict[int, object] = {}
        for chunk in client.read(kafka_topic, 0):
            decoded = decoder.decode(chunk.columns.values)
            client.produce(letters_topic, 0, dead_letters(chunk.columns, decoded, chunk.partition))
            rows = zip(chunk.columns.offsets.tolist(), decoded.values.to_pylist(), strict=True)
            good |= {offset: row for offset, row in rows if row is not None}
        assert good == {
            row: {"id": row, "note": f"n{row % 100}" if row // 3 % 2 else None}
            for row in range(COUNT)
            if row not in bad
        }
        check_letters(client, letters_topic, TopicPartition(kafka_topic, 0), sent, sorted(bad))


def check_letters(client: Client, topic: str, source: TopicPartition, sent: RecordColumns, bad: list[int]) -> None:
    found = []
    for chunk in client.read(topic, 0):
        columns, origins = restore(chunk.columns)
        for row, origin in enumerate(origins):
            assert origin.partition == source
            assert origin.error
            assert columns.values[row] == sent.values[origin.offset]
            assert columns.keys[row] == sent.keys[origin.offset]
            assert columns.timestamps[row] == sent.timestamps[origin.offset]
            assert headers_of(columns, row) == headers_of(sent, origin.offset)
            found.append(origin.offset)
        with pytest.raises(ValueError, match="does not end in the headers of a dead letter"):
            restore(columns)
    assert found == bad
