"""Show and change the levels of the broker's loggers, for DescribeConfigs and IncrementalAlterConfigs.

A resource of type BROKER_LOGGER has one setting per logger. The value is Kafka's name of the level, such as WARN. A
logger whose level is deleted uses its parent's level. Changes last until the process ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = "kafkalite"
DYNAMIC_BROKER_LOGGER: Final = 6
"""The ConfigSource of a level in DescribeConfigs."""

_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


def level_name(level: int) -> str:
    """Return Kafka's name for the lowest level that a logger of this level emits."""
    return next((name for name, number in _LEVELS.items() if level <= number), "OFF")


def levels() -> Iterator[tuple[str, str]]:
    """Yield every logger of this package with its effective level."""
    for name in sorted(logging.root.manager.loggerDict | {ROOT: None}):
        if name == ROOT or name.startswith(ROOT + "."):
            yield name, level_name(logging.getLogger(name).getEffectiveLevel())


def check(name: str, level: str | None) -> None:
    """Raise InvalidConfig or InvalidRequest if the name or the level is not acceptable to `apply`."""
    if name not in dict(levels()):
        raise InvalidConfig(f"unknown logger {name!r}")
    if level is None:
        if name == ROOT:
            raise InvalidRequest(f"the level of {ROOT} can be changed, but not deleted")
    elif level not in _LEVELS:
        raise InvalidConfig(f"unknown log level {level!r}; expected one of {', '.join(_LEVELS)}")


def apply(name: str, level: str | None) -> None:
    """Set a logger's level, which `check` has accepted. With None the logger uses its parent's level."""
    logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
