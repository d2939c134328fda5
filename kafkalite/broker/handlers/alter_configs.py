"""Handle AlterConfigs 0-2 and IncrementalAlterConfigs 0-1: change settings of topics, brokers and other resources.

    AlterConfigs              replaces all of the resource's own settings
    IncrementalAlterConfigs   applies SET, DELETE, and for lists APPEND and SUBTRACT; keeps all other settings

The resources are topics, groups, client metrics subscriptions, brokers and loggers. The change of a resource is applied
as a whole or not at all, independently of other resources. Changes are durable before the response, except for those of
loggers.

    resulting settings are checked together   a bad value gets INVALID_CONFIG, for a broker INVALID_REQUEST, as in Kafka
    resource or setting named twice           INVALID_REQUEST
    subscription without settings             deleted
    broker name ""                            all brokers; a broker's own settings override these settings
    unknown setting of a broker               stored without effect, as in Kafka

Thread rule: runs on the I/O pool. The lock `_changing` makes read, check and write of a resource one step.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger
from kafkalite.broker.handlers import broker_loggers
from kafkalite.broker.handlers.describe_configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CLUSTER_DEFAULT,
    GROUP,
    TOPIC,
    check_access,
    check_broker_name,
    client_metrics_config,
    group_config,
)
from kafkalite.broker.handlers.permissions import ALTER_CONFIGS
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    ConfigError,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    UnknownTopicOrPartition,
)
from kafkalite.model import topic_name_error
from kafkalite.settings.broker import BROKER_SETTINGS, is_broker_setting
from kafkalite.settings.client_metrics import CLIENT_METRICS_SETTINGS, ClientMetricsConfig
from kafkalite.settings.foreign import FOREIGN_LISTS, check_kept
from kafkalite.settings.group import GROUP_SETTINGS, GroupConfig
from kafkalite.settings.rows import WRITTEN_DEFAULT, ConfigType
from kafkalite.settings.topic_setting_lookup import TopicConfig
from kafkalite.settings.topic_settings_table import TOPIC_SETTINGS
from kafkalite.wire.protocol.messages import alter_configs, incremental_alter_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.settings.rows import Setting

logger = RepeatLogger(logging.getLogger(__name__), lines=EVENT_LINES)

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS: Final = frozenset({SET, DELETE, APPEND, SUBTRACT})

_changing = threading.Lock()

Overrides = dict[str, str]


def replace(context: RequestContext, request: alter_configs.AlterConfigsRequest) -> alter_configs.AlterConfigsResponse:
    """Handle AlterConfigs."""
    make = alter_configs.AlterConfigsResourceResponse
    return alter_configs.AlterConfigsResponse(
        responses=_answers(context, request.resources, make, _replacement, validate_only=request.validate_only)
    )


def change(
    context: RequestContext, request: incremental_alter_configs.IncrementalAlterConfigsRequest
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    """Handle IncrementalAlterConfigs."""
    make = incremental_alter_configs.AlterConfigsResourceResponse
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=_answers(context, request.resources, make, _changed, validate_only=request.validate_only)
    )


def settled_here(context: RequestContext, resource: Any, *, incremental: bool, validate_only: bool) -> bool:
    """Do this broker's part of a change in a cluster; return whether no part is left for the controller.

    The broker checks the request and, if the resource is a broker, the resulting settings. It changes the levels of its
    own loggers. The controller does everything else. KafkaError if the change is refused.
    """
    _check_request(resource)
    if resource.resource_type == BROKER_LOGGER and incremental:
        check_access(context, ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        with _changing:
            _alter_loggers(context, resource, validate_only=validate_only)
        return True
    if resource.resource_type == BROKER:
        _alter_broker(context, resource, _changed if incremental else _replacement, validate_only=True)
    elif resource.resource_type not in (TOPIC, GROUP, CLIENT_METRICS):
        raise InvalidRequest(f"configs of resource type {resource.resource_type} cannot be altered")
    return False


def _answers(
    context: RequestContext,
    resources: list[Any],
    make: Callable[..., Any],
    result: Callable[..., Overrides],
    *,
    validate_only: bool,
) -> list[Any]:
    named = Counter((resource.resource_type, resource.resource_name) for resource in checkpointed(resources))
    answers = []
    for resource in checkpointed(resources):
        answer = make(error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("the request names the resource more than once")
            _check_request(resource)
            check_access(context, ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            _alter(context, resource, result, validate_only=validate_only)
        except KafkaError as error:
            answer.error_code = error.code
            answer.error_message = error.message
        answers.append(answer)
    return answers


def _check_request(resource: Any) -> None:
    """Raise InvalidRequest if the request names a setting twice, has an unknown operation, or lacks a value."""
    named = Counter(item.name for item in checkpointed(resource.configs))
    twice = sorted(name for name, count in named.items() if count > 1)
    if twice:
        raise InvalidRequest(f"the request names these configs more than once: {', '.join(twice)}")
    for item in checkpointed(resource.configs):
        operation = getattr(item, "config_operation", SET)
        if operation not in _OPERATIONS:
            raise InvalidRequest(f"unknown operation {operation} for {item.name}")
        if item.value is None and operation != DELETE:
            raise InvalidRequest(f"{item.name} has no value")


def _alter(context: RequestContext, resource: Any, result: Callable[..., Overrides], *, validate_only: bool) -> None:
    with _changing:
        if resource.resource_type == TOPIC:
            _alter_topic(context, resource, result, validate_only=validate_only)
        elif resource.resource_type == BROKER:
            _alter_broker(context, resource, result, validate_only=validate_only)
        elif resource.resource_type == GROUP:
            _alter_group(context, resource, result, validate_only=validate_only)
        elif resource.resource_type == CLIENT_METRICS:
            _alter_client_metrics(context, resource, result, validate_only=validate_only)
        elif resource.resource_type == BROKER_LOGGER and result is _changed:
            _alter_loggers(context, resource, validate_only=validate_only)
        else:
            raise InvalidRequest(f"configs of resource type {resource.resource_type} cannot be altered")


def _alter_topic(
    context: RequestContext, resource: Any, result: Callable[..., Overrides], *, validate_only: bool
) -> None:
    name = resource.resource_name
    if not name:
        raise InvalidRequest("the topic name is empty; set defaults for all topics on the broker resource")
    problem = topic_name_error(name)
    if problem is not None:
        raise InvalidTopic(problem)
    services = context.broker
    topic = services.logs.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition
    overrides = result(resource.configs, TOPIC_SETTINGS, topic.overrides, topic.config)
    try:
        TopicConfig.requested(services.config, overrides, topic.overrides)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error
    if not validate_only:
        services.logs.alter_topic(name, overrides)


def _alter_group(
    context: RequestContext, resource: Any, result: Callable[..., Overrides], *, validate_only: bool
) -> None:
    services = context.broker
    present = group_config(context, resource.resource_name)
    overrides = result(resource.configs, GROUP_SETTINGS, present.overrides, present)
    try:
        config = GroupConfig.resolve(services.config, overrides)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error
    if not validate_only:
        services.logs.metadata.alter_group(resource.resource_name, config)


def _alter_client_metrics(
    context: RequestContext, resource: Any, result: Callable[..., Overrides], *, validate_only: bool
) -> None:
    name = resource.resource_name
    present = client_metrics_config(context, name)
    for item in checkpointed(resource.configs):
        if getattr(item, "config_operation", SET) in (APPEND, SUBTRACT):
            raise InvalidConfig(
                f"APPEND and SUBTRACT are not supported for {item.name} of client metrics; set the whole value"
            )
    overrides = result(resource.configs, CLIENT_METRICS_SETTINGS, present.overrides, present)
    try:
        config = ClientMetricsConfig.resolve(overrides)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error
    if not validate_only and (overrides or present.overrides):
        context.broker.logs.metadata.alter_client_metrics(name, config)


def _alter_broker(
    context: RequestContext, resource: Any, result: Callable[..., Overrides], *, validate_only: bool
) -> None:
    check_broker_name(context, resource.resource_name)
    services = context.broker
    if result is _changed and services.config.written_default:
        for item in checkpointed(resource.configs):
            _check_written_default(resource.resource_name, item)
    cluster = resource.resource_name == CLUSTER_DEFAULT
    present = services.config.changes(cluster=cluster)
    overrides = result(resource.configs, BROKER_SETTINGS, present, services.config)
    try:
        check_kept(overrides, present, BROKER_SETTINGS)
        config = services.config.with_dynamic(overrides, cluster=cluster)
        for check in services.config_checks:
            check(config)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from error
    if not validate_only:
        for name in itertools.filterfalse(is_broker_setting, overrides.keys() - present.keys()):
            logger.warning("broker setting %.300r is unknown and has no effect; it is stored, as Kafka does", name)
        services.use_config(services.logs.alter_broker(overrides, cluster=cluster))


def _check_written_default(broker: str, item: Any) -> None:
    """Raise InvalidConfig if the change names one broker for the cluster-wide setting, or deletes the setting.

    The setting is min.insync.replicas, as in Kafka 4.1.
    """
    if item.name != WRITTEN_DEFAULT:
        return
    if broker:
        raise InvalidConfig(f"{item.name} is cluster-wide; alter it without naming a broker")
    if item.config_operation == DELETE:
        raise InvalidConfig(f"{item.name} can be changed cluster-wide, but not deleted")


def _alter_loggers(context: RequestContext, resource: Any, *, validate_only: bool) -> None:
    check_broker_name(context, resource.resource_name, cluster_default=False)
    for item in checkpointed(resource.configs):
        if item.config_operation not in (SET, DELETE):
            raise InvalidRequest(f"the level of {item.name} can only be set or deleted")
    levels = {
        item.name: item.value if item.config_operation == SET else None for item in checkpointed(resource.configs)
    }
    for name, level in levels.items():
        broker_loggers.check(name, level)
    if not validate_only:
        for name, level in levels.items():
            broker_loggers.apply(name, level)


def _replacement(configs: list[Any], _table: Mapping[str, Setting], _own: Mapping[str, str], _: object) -> Overrides:
    return {item.name: item.value for item in configs}


def _changed(configs: list[Any], table: Mapping[str, Setting], own: Mapping[str, str], effective: object) -> Overrides:
    """Return the resource's own settings after the operations.

    APPEND and SUBTRACT start from the resource's own list, or else from the list in `effective`.
    """
    overrides = dict(own)
    for item in configs:
        if item.config_operation == SET:
            overrides[item.name] = item.value
        elif item.config_operation == DELETE:
            overrides.pop(item.name, None)
        else:
            present = _parts(overrides.get(item.name, _default_list(item, table, effective)))
            given = _parts(item.value)
            if item.config_operation == APPEND:
                present += [part for part in given if part not in present]
            else:
                present = [part for part in present if part not in given]
            overrides[item.name] = ",".join(present)
    return overrides


def _default_list(item: Any, table: Mapping[str, Setting], effective: object) -> str:
    """Return the effective value of a list setting that the resource does not set itself. InvalidConfig if the setting
    is unknown or not a list."""
    row = table.get(item.name)
    if row is None:
        if table is BROKER_SETTINGS and item.name in FOREIGN_LISTS:
            return ""
        raise InvalidConfig(f"unknown setting {item.name}")
    if row.type != ConfigType.LIST:
        raise InvalidConfig(f"{item.name} is not a list, so APPEND and SUBTRACT do not apply to it")
    return str(row.render(getattr(effective, row.attribute)) or "")


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
