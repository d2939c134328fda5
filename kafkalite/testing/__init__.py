"""The test kit: a pytest plugin with a real broker that tests can restart, kill and make fail.

    def test_order_arrives_although_the_leader_moved(kafka_broker, kafka_topic):
        kafka_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        ...

    plugin          fixtures and hooks of pytest
    broker          KafkaBroker: what a test does with a broker, in either place
    in_process      the broker itself, with restarts, crashes and faults
    faults          makes requests fail before they are served
    own_process     starts the broker's process, asks it over a pipe and ends it
    child           what runs in that process
    control         the frames on the pipe; errors keep their class and text
    captured_log    what brokers log, for pytest's report
    unpatched       functions of the system that a test's tools do not replace

         pytest ──┬─ KafkaBroker ── OwnProcess ══ pipes ══ child ─┬─ InProcessBroker ── Faults
                  └─ in_process=True ─────────────────────────────┘

Names are imported when first used: every pytest run with kafkalite installed loads the plugin, and no more until a
fixture is used; the broker's process loads everything but pytest and the plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.testing.broker import Fault as Fault
    from kafkalite.testing.broker import KafkaBroker as KafkaBroker
    from kafkalite.testing.plugin import TopicFactory as TopicFactory

__all__ = ["Fault", "KafkaBroker", "TopicFactory"]

pytest_plugins: Final = ("kafkalite.testing.plugin",)
"""pytest loads it with this module, which is its entry point and what a conftest.py or `-p` names."""

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Fault": "kafkalite.testing.broker",
        "KafkaBroker": "kafkalite.testing.broker",
        "TopicFactory": "kafkalite.testing.plugin",
    },
)
