"""Settings of a cluster, by its image: of its brokers and this one, topics, groups, subscriptions to client metrics.

Controllers keep texts, and check of them what they know themselves. What this release cannot go by is left out here,
with one warning, and the rest counts, as at a broker of Kafka's; groups and subscriptions are taken whole or not at
all. Nothing is made durable.

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
"""Kinds of resources, as the image has them."""
ALL_BROKERS: Final = ""
_NONE: Final[Mapping[str, str]] = {}

_Config = TypeVar("_Config")


class ClusterSettings:
    """What the log directory goes by. `use` belongs to the metadata thread; `tell` is called there with new settings of
    the broker's, once they are the log directory's."""

    def __init__(self, logs: LogManager, tell: Callable[[], None]) -> None:
        self._logs = logs
        self._tell = tell

    def use(self, before: Image, now: Image) -> None:
        """A listener of the member's: settings that have changed count from now on."""
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
        if GROUP in kinds or broker_changed:  # whose bounds are the broker's
            logs.metadata.group_configs = _whole(now, GROUP, lambda texts: GroupConfig.resolve(logs.config, texts))
        if CLIENT_METRICS in kinds:
            logs.metadata.client_metrics = _whole(now, CLIENT_METRICS, ClientMetricsConfig.resolve)


def broker_config(config: BrokerConfig, image: Image) -> BrokerConfig:
    """A broker's settings with those of the image in place of the ones that were changed before."""
    own, others = (image.configs.get((BROKER, name), _NONE) for name in (str(config.node_id), ALL_BROKERS))
    static = config.with_dynamic({}).with_dynamic({}, cluster=True)
    merged = _usable(lambda texts: static.with_dynamic(texts, cluster=True), others, "all brokers")
    return _usable(merged.with_dynamic, own, "this broker")


def topic_config(config: BrokerConfig, image: Image, name: str, *, told: bool = False) -> TopicConfig:
    """The settings of a topic: its own that the image has, else the broker's. What does not count is `told`, or not."""
    texts = image.configs.get((TOPIC, name), _NONE)
    return _usable(lambda kept: TopicConfig.resolve(config, kept, name), texts, f"topic {name}" if told else "")


def names(image: Image, kind: int) -> list[str]:
    """The resources of a kind that have settings of their own, sorted."""
    return sorted(name for each, name in image.configs if each == kind)


def _changed(before: Image, now: Image) -> Iterator[tuple[int, str]]:
    for key in before.configs.keys() | now.configs.keys():
        if before.configs.get(key) is not now.configs.get(key):
            yield key


def _usable(make: Callable[[Mapping[str, str]], _Config], texts: Mapping[str, str], whose: str) -> _Config:
    """What is made of these texts without those that it refuses, of which a warning tells `whose` they are."""
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
    """By name, without those that cannot be taken as they are."""
    found = {}
    for name in names(image, kind):
        try:
            found[name] = make(image.configs[kind, name])
        except (ConfigError, InvalidRequest) as error:
            logger.warning("ignored invalid settings of the cluster: %s", error, extra=fields(of=name))
    return found
