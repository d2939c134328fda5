"""Provide the test kit: a pytest plugin with a real broker that tests can restart, kill and make fail.

    def test_order_arrives_although_the_leader_moved(kafka_broker, kafka_topic):
        kafka_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        ...

    plugin          fixtures and hooks of pytest
    broker          KafkaBroker: the interface for tests, for a broker in its own process or in pytest's
    in_process      the broker itself, with restarts, crashes and faults
    faults          errors, delays and lost connections for requests
    own_process     starts the broker's process, exchanges messages with it over pipes, and ends it
    child           the program of that process
    control         the messages on the pipes
    captured_log    the log of brokers, for pytest's report
    unpatched       functions of the operating system, protected from replacement by a test's tools

By default the broker runs in its own process, which loads neither pytest nor the plugin. With `in_process=True` it
runs in pytest's process.

Every pytest run with kafkalite installed loads the plugin, and no broker until a fixture is used. The names of this
package are imported when they are first used.
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
