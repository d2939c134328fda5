"""A durable Kafka broker in one Python process.

    from kafkalite import Broker

    with Broker() as broker:
        print(broker.bootstrap_servers)

Packages such as `kafkalite.client` and `kafkalite.avro` show their own entry points in their docstrings. Names are
imported when first used, so that importing the package is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.base.lazy import lazy_names
from kafkalite.version import VERSION

if TYPE_CHECKING:
    from kafkalite.broker.log.retention import RetentionPolicy as RetentionPolicy
    from kafkalite.broker.log.retention import SegmentAge as SegmentAge
    from kafkalite.broker.server import Broker as Broker
    from kafkalite.errors import ConfigError as ConfigError
    from kafkalite.errors import KafkaError as KafkaError
    from kafkalite.errors import StartupError as StartupError
    from kafkalite.settings.broker import BrokerConfig as BrokerConfig

__version__ = VERSION

_WHERE: Final = {
    "Broker": "kafkalite.broker.server",
    "BrokerConfig": "kafkalite.settings.broker",
    "ConfigError": "kafkalite.errors",
    "KafkaError": "kafkalite.errors",
    "RetentionPolicy": "kafkalite.broker.log.retention",
    "SegmentAge": "kafkalite.broker.log.retention",
    "StartupError": "kafkalite.errors",
}

__all__ = [
    "Broker",
    "BrokerConfig",
    "ConfigError",
    "KafkaError",
    "RetentionPolicy",
    "SegmentAge",
    "StartupError",
    "__version__",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
