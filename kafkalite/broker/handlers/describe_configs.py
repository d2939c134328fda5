"""Handle DescribeConfigs 1-4: show the settings of topics, brokers and other resources, with their sources.

    v1   source and synonyms instead of "is default"
    v3   type, and documentation on request

The resources are topics, groups, client metrics subscriptions, brokers and loggers. If the request names no keys, all
settings are returned, with the defaults. Unknown keys are left out.

    broker name ""                        the dynamic settings of all brokers; a standalone broker adds
                                          min.insync.replicas
    another broker's id                   INVALID_REQUEST
    missing group or subscription         the default settings
    empty group or subscription name      INVALID_REQUEST
    any other resource type               INVALID_REQUEST
    stored setting, unknown here          shown as sensitive, without a value
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from kafkalite.base.acls import CLUSTER_NAME, ResourceType
from kafkalite.broker.handlers import broker_loggers
from kafkalite.broker.handlers.permissions import DESCRIBE_CONFIGS, check
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    UnknownTopicOrPartition,
)
from kafkalite.model import topic_name_error
from kafkalite.settings.broker import is_broker_setting
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.settings.group import GroupConfig
from kafkalite.settings.rows import ConfigSource, ConfigType
from kafkalite.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite.base.acls import AclOperation
    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.settings.rows import ConfigEntry
    from kafkalite.settings.topic_setting_lookup import TopicConfig

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
CLUSTER_DEFAULT: Final = ""
"""The broker name that means all brokers."""

_GUARDED: Final = {
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
}
"""Resource type of settings → the type of the resource whose permissions protect them."""

_Described = dict[Hashable, list[DescribeConfigsResourceResult]]
"""Key that resources with equal settings share → the settings, described once per request."""


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    described: _Described = {}
    return DescribeConfigsResponse(
        results=[_describe(context, item, request, described) for item in checkpointed(request.resources)]
    )


def _describe(
    context: RequestContext, item: DescribeConfigsResource, request: DescribeConfigsRequest, described: _Described
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(error_message="", resource_type=item.resource_type, resource_name=item.resource_name)
    try:
        check_access(context, DESCRIBE_CONFIGS, item.resource_type, item.resource_name)
        configs = _configs(context, item, request, described)
        if item.configuration_keys:
            keys = frozenset(item.configuration_keys)
            configs = [config for config in configs if config.name in keys]
        result.configs = configs
    except KafkaError as error:
        result.error_code = error.code
        # Kafka's message for a missing topic is empty.
        result.error_message = "" if isinstance(error, UnknownTopicOrPartition) else error.message
    return result


def _configs(
    context: RequestContext, item: DescribeConfigsResource, request: DescribeConfigsRequest, described: _Described
) -> list[DescribeConfigsResourceResult]:
    """Return the settings of a resource. Resources with the same settings share one list, since a list takes 0.3 ms to
    build."""
    kind, name = item.resource_type, item.resource_name
    given: Hashable = name
    if kind == TOPIC:
        topic = _topic_config(context, name)
        given = frozenset(topic.overrides.items())
        if topic.message_format == "classic":  # broker settings may name this topic
            given = (name, given)
    elif kind == GROUP:
        given = _group_overrides(context, name)
    elif kind == CLIENT_METRICS:
        given = frozenset(client_metrics_config(context, name).overrides.items())
    elif kind == BROKER:
        check_broker_name(context, name)
    elif kind == BROKER_LOGGER:
        check_broker_name(context, name, cluster_default=False)
    else:
        raise InvalidRequest(f"unsupported resource type {kind}")
    found = described.get((kind, given))
    if found is None:
        found = described[kind, given] = list(_settings(context, kind, name, request))
    return found


def _settings(
    context: RequestContext, kind: int, name: str, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    """Return the settings of a resource whose name was checked."""
    config = context.broker.config
    entries: Iterable[ConfigEntry]
    if kind == BROKER_LOGGER:
        return _loggers()
    if kind == BROKER:
        if name == CLUSTER_DEFAULT:
            return _cluster_defaults(context, request)
        return [
            *(_from_entry(entry, request) for entry in config.describe()),
            *_kept(context, ConfigSource.DYNAMIC_BROKER),
            *_kept(context, ConfigSource.DYNAMIC_DEFAULT_BROKER, alone=False),
        ]
    if kind == TOPIC:
        entries = _topic_config(context, name).describe(config, name)
    elif kind == GROUP:
        entries = group_config(context, name).describe(config)
    else:
        entries = client_metrics_config(context, name).describe()
    return [_from_entry(entry, request) for entry in entries]


def check_access(context: RequestContext, operation: AclOperation, kind: int, name: str) -> None:
    """Raise the authorization error unless the client may do the operation on a resource. Unknown resource types need
    no permission."""
    guard = _GUARDED.get(kind)
    if guard is not None:
        check(context, operation, guard, CLUSTER_NAME if guard is ResourceType.CLUSTER else name)


def check_broker_name(context: RequestContext, name: str, *, cluster_default: bool = True) -> None:
    """Raise InvalidRequest unless the name is this broker's id or, if `cluster_default`, the empty name for all
    brokers."""
    node_id = context.broker.cluster.node_id
    if name != str(node_id) and not (cluster_default and name == CLUSTER_DEFAULT):
        wanted = f"{node_id}, or empty for the cluster-wide default," if cluster_default else f"{node_id}"
        raise InvalidRequest(f"the broker's resource name is {wanted} not {name!r}")


def _topic_config(context: RequestContext, name: str) -> TopicConfig:
    problem = topic_name_error(name)
    if problem is not None:
        raise InvalidTopic(problem)
    config = context.broker.topic_config(name)
    if config is None:
        raise UnknownTopicOrPartition
    return config


def _group_overrides(context: RequestContext, group_id: str) -> frozenset[tuple[str, str]]:
    own = context.broker.logs.metadata.group_configs.get(group_id)
    return frozenset() if own is None and group_id else frozenset(group_config(context, group_id).overrides.items())


def group_config(context: RequestContext, group_id: str) -> GroupConfig:
    """Return a group's settings, or the defaults if the group has none. InvalidRequest for an empty id."""
    if not group_id:
        raise InvalidRequest("the group id is empty; defaults for all groups are broker settings (group.*)")
    services = context.broker
    return services.logs.metadata.group_configs.get(group_id) or GroupConfig.resolve(services.config, {})


def client_metrics_config(context: RequestContext, name: str) -> ClientMetricsConfig:
    """Return a client metrics subscription's settings, or the defaults if it does not exist. InvalidRequest for an
    empty name."""
    if not name:
        raise InvalidRequest("the name of the client metrics subscription is empty")
    return context.broker.logs.metadata.client_metrics.get(name) or ClientMetricsConfig()


def _from_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(
                name=synonym.name, value=None if entry.sensitive else synonym.value, source=synonym.source
            )
            for synonym in entry.synonyms
        ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _cluster_defaults(
    context: RequestContext, request: DescribeConfigsRequest
) -> Iterator[DescribeConfigsResourceResult]:
    config = context.broker.config
    yield from _kept(context, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    for entry in config.describe():
        if entry.name in config.cluster_texts or entry.name == config.written_default:
            described = _from_entry(entry, request)
            described.config_source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            if entry.name in config.cluster_texts and not entry.sensitive:
                described.value = config.cluster_texts[entry.name]
            described.synonyms = [
                DescribeConfigsSynonym(
                    name=entry.name, value=described.value, source=ConfigSource.DYNAMIC_DEFAULT_BROKER
                )
            ] * request.include_synonyms
            yield described


def _kept(
    context: RequestContext, source: ConfigSource, *, alone: bool = True
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the stored settings that this broker does not know, without values, since they may be secrets.

    Unless `alone`, leave out a setting of all brokers if this broker overrides it.
    """
    cluster = source == ConfigSource.DYNAMIC_DEFAULT_BROKER
    config = context.broker.config
    for name in config.changes(cluster=cluster):
        if not is_broker_setting(name) and not (cluster and name in config.dynamic_texts and not alone):
            yield DescribeConfigsResourceResult(
                name=name,
                value=None,
                read_only=True,
                config_source=source,
                is_sensitive=True,
                synonyms=[DescribeConfigsSynonym(name=name, value=None, source=source)],
                documentation=None,
            )


def _loggers() -> Iterator[DescribeConfigsResourceResult]:
    for name, level in broker_loggers.levels():
        yield DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=broker_loggers.DYNAMIC_BROKER_LOGGER,
            config_type=ConfigType.STRING,
            documentation=None,
        )
