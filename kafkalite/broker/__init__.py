"""The broker. Only `kafkalite`, `kafkalite.cli` and `kafkalite.testing` import from here.

    server         the Broker that programs use: settings, start and stop, topics, users
    composition    builds every part, and starts and stops them in order
    cluster_parts · worker_factory   the parts of a broker in a cluster; network workers
    dispatch       a request's header → its handler → a response, using `handlers`
    net            acceptor and workers
    coordinator    consumer groups and transactions, on top of `log`
    log            topics and partitions on the disk
    cluster        membership in a cluster whose controllers are Apache Kafka's
    metrics        metrics and health over HTTP
    limits · quotas · security · telemetry · features · process · replaced_functions   the base of these
    migration · backup · host_check                               the commands that work on a data directory

Names are imported when first used, so that importing the package costs nothing.
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
