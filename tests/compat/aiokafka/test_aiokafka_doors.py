"""aiokafka through every door: Python's own TLS, and its own SCRAM."""

from __future__ import annotations

import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compat.aiokafka.test_aiokafka import run
from tests.compat.doors import PASSWORD, USER, Door, House, each_door, unsecured_token
from tests.compat.records import committed_offset, values_to_end

COUNT = 20


class Tokens(AbstractTokenProvider):
    async def token(self) -> str:
        return unsecured_token(USER)


def settings_of(door: Door) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=door.ca)
    if door.certificate:
        context.load_cert_chain(door.certificate, door.key)
    found = {"bootstrap_servers": door.bootstrap, "security_protocol": door.protocol, "ssl_context": context}
    if door.mechanism == "OAUTHBEARER":
        found |= {"sasl_mechanism": door.mechanism, "sasl_oauth_token_provider": Tokens()}
    elif door.mechanism:
        found |= {
            "sasl_mechanism": door.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    return found


@each_door
def test_writes_once_in_transactions_and_reads_in_a_group(house: House, door: Door, topic: str) -> None:
    run(work(settings_of(door), topic))
    assert committed_offset(house.plain, f"group-{topic}", topic) == 7
    assert values_to_end(house.plain, topic, "read_committed") == [f"committed-{number}" for number in range(COUNT)]


async def work(settings: dict[str, Any], topic: str) -> None:
    admin = AIOKafkaAdminClient(**settings)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(**settings, transactional_id=f"id-{topic}")
    await producer.start()
    for word, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        await producer.begin_transaction()
        for number in range(COUNT):
            await producer.send_and_wait(topic, f"{word}-{number}".encode(), partition=0)
        await end()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic,
        **settings,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    found = [(await consumer.getone()).value.decode() for _ in range(COUNT)]
    assert found == [f"committed-{number}" for number in range(COUNT)]
    await consumer.commit({TopicPartition(topic, 0): 7})
    await consumer.stop()
