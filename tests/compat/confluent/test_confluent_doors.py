"""confluent-kafka through every door: librdkafka's OpenSSL and its own SCRAM."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent.test_confluent import take
from tests.compat.doors import Door, House, each_door
from tests.compat.records import committed_offset, values_to_end

TIMEOUT_S = 60
COUNT = 20


@each_door
def test_writes_once_in_transactions_and_reads_in_a_group(house: House, door: Door, topic: str) -> None:
    settings = door.librdkafka()
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(TIMEOUT_S)
    producer = Producer({**settings, "transactional.id": f"id-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for word, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        for number in range(COUNT):
            producer.produce(topic, f"{word}-{number}".encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        end(TIMEOUT_S)
    group = {"group.id": f"group-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, **group, "isolation.level": "read_committed", "check.crcs": True})
    consumer.subscribe([topic])
    found = [message.value().decode() for message in take(consumer, COUNT)]
    assert found == [f"committed-{number}" for number in range(COUNT)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    assert committed_offset(house.plain, f"group-{topic}", topic) == 7
    assert values_to_end(house.plain, topic, "read_committed") == found
