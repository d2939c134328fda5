"""The broker's loggers as settings: DescribeConfigs shows their levels, IncrementalAlterConfigs changes them.

A logger is a setting of resource type BROKER_LOGGER, its level the value, in Kafka's names. Deleting a level lets the
logger follow its parent. Changes last until the process ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkalite.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = "kafkalite"
DYNAMIC_BROKER_LOGGER: Final = 6
"""ConfigSource of a level, numbered as DescribeConfigs numbers it."""

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
    """Kafka's name for the mildest level that a logger of this level lets through."""
    return next((name for name, number in _LEVELS.items() if level <= number), "OFF")


def levels() -> Iterator[tuple[str, str]]:
    """Every logger of this package and the level it works at."""
    for name in sorted(logging.root.manager.loggerDict | {ROOT: None}):
        if name == ROOT or name.startswith(ROOT + "."):
            yield name, level_name(logging.getLogger(name).getEffectiveLevel())


def check(name: str, level: str | None) -> None:
    """Raises unless `apply` may be called with these."""
    if name not in dict(levels()):
        raise InvalidConfig(f"unknown logger {name!r}")
    if level is None:
        if name == ROOT:
            raise InvalidRequest(f"the level of {ROOT} can be changed, but not deleted")
    elif level not in _LEVELS:
        raise InvalidConfig(f"unknown log level {level!r}; expected one of {', '.join(_LEVELS)}")


def apply(name: str, level: str | None) -> None:
    """Sets a checked logger's level; None lets it follow its parent."""
    logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
