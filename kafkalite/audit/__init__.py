"""Proof that what producers sent has arrived everywhere, once: marks in messages, counts beside them, and who compares.

    producer ─▶ tally.py ──mark in a header──▶ topic ─▶ broker ─▶ mirror ─▶ broker ─▶ loaded files
                   │                                      │                   │            │
                   └──counts a window──▶ kafkalite.audit  └───────────────────┴────────────┘
                                              │                       counts.py
                                              ▼                           │
                                          events.py ────▶ judge.py ◀──────┘   missing, duplicated, unreported

    marks.py       server, run, sequence and time of a message as bytes of one header
    tally.py       gives marks, and counts them by window until they are reported
    producers.py   AuditedProducer, AuditedWriter: kafkalite.client with a tally; librdkafka.py: confluent-kafka's
    events.py      the messages of the audit topic, and what they say together
    counts.py      which marks a stage has, how often
    stages.py      stages read: brokers, a mirror's word, loaded files
    judge.py       the comparison

Names are imported when first used; confluent-kafka is not needed unless it is wrapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.audit.librdkafka import AuditedConfluentProducer as AuditedConfluentProducer
    from kafkalite.audit.producers import AuditedProducer as AuditedProducer
    from kafkalite.audit.producers import AuditedWriter as AuditedWriter

_WHERE: Final = {
    "AuditedConfluentProducer": "kafkalite.audit.librdkafka",
    "AuditedProducer": "kafkalite.audit.producers",
    "AuditedWriter": "kafkalite.audit.producers",
}

__all__ = ["AuditedConfluentProducer", "AuditedProducer", "AuditedWriter"]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
