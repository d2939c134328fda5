"""Apply the dynamic settings in a cluster's image: of brokers, topics, groups and client metrics subscriptions.

If this release cannot apply a setting of a broker or topic, the setting is skipped with a warning, as on a Kafka
broker. The settings of a group or subscription apply only if all of them are valid. Nothing is stored on disk.

Source: DynamicConfigPublisher and DynamicBrokerConfig.fromPersistentProps of Kafka 4.1.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalite.base.logging import fields
from kafkalite.errors import ConfigError, InvalidRequest
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.settings.group import GroupConfig
from kafkalite.settings.topic_setting_lookup import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger("kafkalite.broker.cluster")

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""Types of resources, as in the image."""
ALL_BROKERS: Final = ""
_NONE: Final[Mapping[str, str]] = {}

_Config = TypeVar("_Config")


class ClusterSettings:
    """Applies the cluster's settings to the logs of a data directory.

    `use` belongs to the metadata thread. It calls `tell` after the log manager has new broker settings.
    """

    def __init__(self, logs: LogManager, tell: Callable[[], None]) -> None:
        self._logs = logs
        self._tell = tell

    def use(self, before: Image, now: Image) -> None:
        """Apply changed settings. A listener of the member."""
        if now.configs is before.configs:
            return
        logs, names = self._logs, (ALL_BROKERS, str(self._logs.config.node_id))
        changed = list(_changed(before, now))
        broker_changed = any(kind == BROKER and name in names for kind, name in changed)
        if broker_changed:
            logs.use_config(broker_config(logs.config, now))
            self._tell()
        for kind, name in changed:
            if kind == TOPIC and name in logs.topics:
                logs.use_topic_config(name, topic_config(logs.config, now, name, told=True))
        kinds = {kind for kind, _ in changed}
        if GROUP in kinds or broker_changed:  # the broker's settings bound the groups'
            logs.metadata.group_configs = _whole(now, GROUP, lambda texts: GroupConfig.resolve(logs.config, texts))
        if CLIENT_METRICS in kinds:
            logs.metadata.client_metrics = _whole(now, CLIENT_METRICS, ClientMetricsConfig.resolve)


def broker_config(config: BrokerConfig, image: Image) -> BrokerConfig:
    """Return `config` with the dynamic settings of the image instead of its present dynamic settings."""
    own, others = (image.configs.get((BROKER, name), _NONE) for name in (str(config.node_id), ALL_BROKERS))
    static = config.with_dynamic({}).with_dynamic({}, cluster=True)
    merged = _usable(lambda texts: static.with_dynamic(texts, cluster=True), others, "all brokers")
    return _usable(merged.with_dynamic, own, "this broker")


def topic_config(config: BrokerConfig, image: Image, name: str, *, told: bool = False) -> TopicConfig:
    """Return a topic's settings from the image, with the broker's settings as defaults.

    With `told`, log each invalid setting.
    """
    texts = image.configs.get((TOPIC, name), _NONE)
    return _usable(lambda kept: TopicConfig.resolve(config, kept, name), texts, f"topic {name}" if told else "")


def names(image: Image, kind: int) -> list[str]:
    """Return the sorted names of the resources of one type that have settings."""
    return sorted(name for each, name in image.configs if each == kind)


def _changed(before: Image, now: Image) -> Iterator[tuple[int, str]]:
    for key in before.configs.keys() | now.configs.keys():
        if before.configs.get(key) is not now.configs.get(key):
            yield key


def _usable(make: Callable[[Mapping[str, str]], _Config], texts: Mapping[str, str], whose: str) -> _Config:
    """Return the result of `make` for the valid settings in `texts`.

    Each invalid setting is left out, and logged if `whose` is given.
    """
    kept = dict(texts)
    while True:
        try:
            return make(kept)
        except ConfigError as error:
            if not kept:
                raise
            if error.key in kept:
                del kept[error.key]
            else:
                kept.clear()
            if whose:
                logger.warning("ignored an invalid setting of the cluster: %s", error, extra=fields(of=whose))


def _whole(image: Image, kind: int, make: Callable[[Mapping[str, str]], _Config]) -> dict[str, _Config]:
    """Return resource name → settings for one resource type. A resource with an invalid setting is left out."""
    found = {}
    for name in names(image, kind):
        try:
            found[name] = make(image.configs[kind, name])
        except (ConfigError, InvalidRequest) as error:
            logger.warning("ignored invalid settings of the cluster: %s", error, extra=fields(of=name))
    return found
