"""A durable Kafka broker in one Python process.

    from kafkalite import Broker

    with Broker() as broker:
        print(broker.bootstrap_servers)

Everything else is private unless a module's docstring says otherwise. Names are imported when first used, so that
importing the package costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.broker import Broker as Broker
    from kafkalite.config import BrokerConfig as BrokerConfig
    from kafkalite.errors import ConfigError as ConfigError
    from kafkalite.errors import KafkaError as KafkaError
    from kafkalite.errors import StartupError as StartupError

__version__ = "0.1.0"

_WHERE = {
    "Broker": "kafkalite.broker",
    "BrokerConfig": "kafkalite.config",
    "ConfigError": "kafkalite.errors",
    "KafkaError": "kafkalite.errors",
    "StartupError": "kafkalite.errors",
}

__all__ = ["Broker", "BrokerConfig", "ConfigError", "KafkaError", "StartupError", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
