"""Verify that each message of a producer arrives in every later stage exactly once.

A stage is a place that messages reach: a broker, the target of a mirror, a group of consumers, or files written by
`kafkalite load`. A mark in each message identifies it in all stages.

    producers   put a mark into each message, and send their counts by time window to the audit topic
    consumers   send the offsets that they processed to the audit topic
    audit       reads the audit topic and the marks in each stage, and compares the numbers
    result      messages that are missing, duplicated or unreported

    marks.py               the mark as bytes of a header
    fields.py              the mark as a field of the payload
    tally.py               assigns marks to messages, and counts the messages by window
    producers.py           AuditedProducer, AuditedWriter: kafkalite.client's producers with marks
    librdkafka.py          confluent-kafka's producer with marks
    classic.py             Kafka 0.7's producer with marks
    taken.py               reports of the offsets that consumers processed
    consumers.py           kafkalite.client's consumers with these reports
    foreign_consumers.py   consumers of other libraries with these reports
    classic_consumers.py   Kafka 0.7's consumers with these reports
    events.py              encodes and adds up producers' counts, the messages of the audit topic
    counts.py              counts the marks in a stage
    stages.py              reads stages: brokers, a mirror's progress, loaded files
    judge.py               compares the reported numbers with the stages
    run.py                 runs one audit
    following.py           runs a continuous audit
    following_stages.py, histories.py, lasting.py, saved.py    parts of the continuous audit

Names are imported when first used, so other client libraries are needed only to wrap their clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.audit.classic import AuditedClassicProducer as AuditedClassicProducer
    from kafkalite.audit.classic_consumers import AuditedClassicConnector as AuditedClassicConnector
    from kafkalite.audit.consumers import AuditedGroupReader as AuditedGroupReader
    from kafkalite.audit.foreign_consumers import AuditedAioKafkaConsumer as AuditedAioKafkaConsumer
    from kafkalite.audit.foreign_consumers import AuditedConfluentConsumer as AuditedConfluentConsumer
    from kafkalite.audit.foreign_consumers import AuditedKafkaPythonConsumer as AuditedKafkaPythonConsumer
    from kafkalite.audit.librdkafka import AuditedConfluentProducer as AuditedConfluentProducer
    from kafkalite.audit.producers import AuditedProducer as AuditedProducer
    from kafkalite.audit.producers import AuditedWriter as AuditedWriter

_WHERE: Final = {
    "AuditedAioKafkaConsumer": "kafkalite.audit.foreign_consumers",
    "AuditedClassicConnector": "kafkalite.audit.classic_consumers",
    "AuditedClassicProducer": "kafkalite.audit.classic",
    "AuditedConfluentConsumer": "kafkalite.audit.foreign_consumers",
    "AuditedConfluentProducer": "kafkalite.audit.librdkafka",
    "AuditedGroupReader": "kafkalite.audit.consumers",
    "AuditedKafkaPythonConsumer": "kafkalite.audit.foreign_consumers",
    "AuditedProducer": "kafkalite.audit.producers",
    "AuditedWriter": "kafkalite.audit.producers",
}

__all__ = [
    "AuditedAioKafkaConsumer",
    "AuditedClassicConnector",
    "AuditedClassicProducer",
    "AuditedConfluentConsumer",
    "AuditedConfluentProducer",
    "AuditedGroupReader",
    "AuditedKafkaPythonConsumer",
    "AuditedProducer",
    "AuditedWriter",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
