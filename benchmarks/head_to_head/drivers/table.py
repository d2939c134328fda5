"""List the load drivers: their system, how they are built, what each --ack means, and notes for the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Driver:
    """One load driver."""

    name: str
    systems: tuple[str, ...]
    """kafkalite, kafkalite-classic (its port of Kafka 0.7), kafka, null, rabbitmq, activemq, nats, redis."""
    protocol: str
    """Which of a system's ports --port is: kafka, kafka-0.7, amqp, openwire, stomp, nats, resp."""
    language: Literal["C", "Java", "Python"]
    source: str
    """A file beside this one; for Java the one with `main`."""
    acks: Mapping[str, str]
    """What each value of --ack means; others are refused."""
    not_comparable: str
    """What to say beside its figures."""
    package: str
    """What brings its client library: a Debian package, for Python one of pip's; empty when it has none."""
    libraries: tuple[str, ...] = ()
    """C: linked. Python: imported. Java: jars in /usr/share/java."""
    more_sources: tuple[str, ...] = ()
    """C: compiled with it, from the repository's root. Java: beside it."""


KAFKA_ACKS = {
    "none": "acks=0: handed to the kernel",
    "one": "acks=1: in the broker's log, not yet on the disk",
    "disk": "acks=all: on the disk, where the broker is set to flush before it answers",
}
CLASSIC_ACKS = {"none": "Kafka 0.7 acknowledges nothing: handed to the kernel"}
RABBITMQ_ACKS = {
    "none": "no confirms: handed to the kernel",
    "one": "a confirm, which RabbitMQ gives once the message is on the disk",
    "disk": "the same as one: a confirm is given once the message is on the disk",
}
ACTIVEMQ_ACKS = {
    "none": "not answered: handed to the kernel",
    "one": "answered once the journal has it: on the disk where journalDiskSyncStrategy=always",
    "disk": "answered once the journal has it: on the disk where journalDiskSyncStrategy=always",
}
REDIS_ACKS = {
    "one": "a reply, once the append-only file has it (appendfsync everysec: not yet on the disk)",
    "disk": "a reply, which appendfsync=always gives once it is on the disk",
}
NULL_NOTE = "the null broker does the least a broker must: it is the ceiling of the client"
CLASSIC_NOTE = "the paper's own form: no acknowledgement, so that the rate is what the client could hand over"
QUEUE_NOTE = (
    "a queue: consuming removes each message, and one is consumed once; a log keeps them for any number of readers"
)
REDIS_NOTE = "the stream is in memory, and its size bounded by that; the append-only file is its copy"
NATS_NOTE = "flushed by a timer (sync_interval, 2 minutes by default); no flush before an acknowledgement up to 2.9"
ACTIVEMQ_JARS = (
    "activemq-client.jar",
    "geronimo-jms_1.1_spec.jar",
    "geronimo-j2ee-management-1.1-spec.jar",
    "hawtbuf.jar",
    "slf4j-api.jar",
    "slf4j-nop.jar",
)

TABLE = (
    Driver(
        name="kafka-c",
        systems=("kafkalite", "kafka", "null"),
        protocol="kafka",
        language="C",
        source="kafka_c.c",
        acks=KAFKA_ACKS,
        not_comparable=NULL_NOTE,
        package="librdkafka-dev",
        libraries=("rdkafka",),
    ),
    Driver(
        name="kafka-bare",
        systems=("kafkalite", "kafka", "null"),
        protocol="kafka",
        language="C",
        source="kafka_bare.c",
        acks=KAFKA_ACKS,
        not_comparable=NULL_NOTE,
        package="",
        more_sources=("ext/c/crc32c.c",),
    ),
    Driver(
        name="kafka-python-user",
        systems=("kafkalite", "kafka", "null"),
        protocol="kafka",
        language="Python",
        source="kafka_python_user.py",
        acks=KAFKA_ACKS,
        not_comparable=NULL_NOTE,
        package="confluent-kafka",
        libraries=("confluent_kafka",),
    ),
    Driver(
        name="classic-c",
        systems=("kafkalite-classic",),
        protocol="kafka-0.7",
        language="C",
        source="classic_c.c",
        acks=CLASSIC_ACKS,
        not_comparable=CLASSIC_NOTE,
        package="",
        more_sources=("ext/c/crc32.c",),
    ),
    Driver(
        name="classic",
        systems=("kafkalite-classic",),
        protocol="kafka-0.7",
        language="Python",
        source="classic.py",
        acks=CLASSIC_ACKS,
        not_comparable=CLASSIC_NOTE,
        package="kafkalite",
        libraries=("kafkalite",),
    ),
    Driver(
        name="rabbitmq-c",
        systems=("rabbitmq",),
        protocol="amqp",
        language="C",
        source="rabbitmq_c.c",
        acks=RABBITMQ_ACKS,
        not_comparable=QUEUE_NOTE,
        package="librabbitmq-dev",
        libraries=("rabbitmq",),
    ),
    Driver(
        name="rabbitmq-pika",
        systems=("rabbitmq",),
        protocol="amqp",
        language="Python",
        source="rabbitmq_pika.py",
        acks=RABBITMQ_ACKS,
        not_comparable=QUEUE_NOTE,
        package="pika",
        libraries=("pika",),
    ),
    Driver(
        name="activemq-java",
        systems=("activemq",),
        protocol="openwire",
        language="Java",
        source="ActiveMq.java",
        acks=ACTIVEMQ_ACKS,
        not_comparable=QUEUE_NOTE,
        package="libactivemq-java",
        libraries=ACTIVEMQ_JARS,
        more_sources=("Run.java",),
    ),
    Driver(
        name="activemq-stomp",
        systems=("activemq",),
        protocol="stomp",
        language="Python",
        source="activemq_stomp.py",
        acks=ACTIVEMQ_ACKS,
        not_comparable=QUEUE_NOTE,
        package="stomp.py",
        libraries=("stomp",),
    ),
    Driver(
        name="nats-c",
        systems=("nats",),
        protocol="nats",
        language="C",
        source="nats_c.c",
        acks={
            "none": "no reply subject: handed to the kernel",
            "one": "JetStream's acknowledgement: in the stream's file, not yet on the disk",
        },
        not_comparable=NATS_NOTE,
        package="",
    ),
    Driver(
        name="redis-c",
        systems=("redis",),
        protocol="resp",
        language="C",
        source="redis_c.c",
        acks={"none": "CLIENT REPLY OFF: handed to the kernel", **REDIS_ACKS},
        not_comparable=REDIS_NOTE,
        package="libhiredis-dev",
        libraries=("hiredis",),
    ),
    Driver(
        name="redis-py",
        systems=("redis",),
        protocol="resp",
        language="Python",
        source="redis_python.py",
        acks=REDIS_ACKS,
        not_comparable=f"{REDIS_NOTE}; one batch is in flight at a time",
        package="redis",
        libraries=("redis",),
    ),
)
