"""Implement the Kafka broker. Only `kafkalite`, `kafkalite.cli` and `kafkalite.testing` import from here.

    server              the Broker that programs use: settings, start and stop, topics, users
    composition         builds all parts of a broker, and starts and stops them in order
    cluster_parts       builds the parts that only a broker in a cluster has
    worker_factory      builds network workers
    dispatch            finds a request's handler (in `handlers`) and encodes the response
    handlers            one module per API
    net                 acceptor and workers
    coordinator         consumer groups and transactions, on top of `log`
    log                 topics and partitions on the disk
    cluster             membership in a cluster whose controllers are Apache Kafka's
    metrics             metrics and health over HTTP
    limits, quotas, security, telemetry, features    used by handlers and connections
    process, replaced_functions                      prepare and check the process at a start
    migration, backup, host_check                    commands that work on a data directory

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.broker.server import Broker as Broker
    from kafkalite.broker.server import Companion as Companion

_WHERE: Final = {
    "Broker": "kafkalite.broker.server",
    "Companion": "kafkalite.broker.server",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
