"""The broker. Only `kafkalite`, `kafkalite.cli` and `kafkalite.testing` import from here.

    composition    builds every part, and starts and stops them in order
    dispatch       a request's header → its handler → an answer, over `handlers`
    net            acceptor and workers
    coordinator    consumer groups and transactions, over `log`
    log            topics and partitions on the disk
    cluster        in a cluster whose controllers are Apache Kafka's
    metrics        what it tells of itself over HTTP
    limits · quotas · security · telemetry · features · process   what these stand on
    backup · machine · migration                                  what commands do with a data directory

Names are imported when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite.broker.composition import Broker as Broker
    from kafkalite.broker.composition import Companion as Companion

_WHERE: Final = {
    "Broker": "kafkalite.broker.composition",
    "Companion": "kafkalite.broker.composition",
}

__all__ = list(_WHERE)

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
