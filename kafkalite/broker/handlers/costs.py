"""Estimate the cost of the items that a request implies but does not list.

For example, a null list of topics implies all topics, and a group's name implies its members. Each function returns
microseconds, computed from known counts without a search. The results are rough: they only decide whether a request
runs on a network thread or on the thread for long requests (`kafkalite.broker.handlers.table`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.handlers.topics import partition_total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.broker.handlers.context import RequestContext

ROW_US: Final = 3.0
"""Cost of one object in a response."""
SHARED_ROW_US: Final = 0.3
"""Cost of one object that all responses share, so it only has to be encoded."""
QUESTION_US: Final = 5.0
"""Cost of one authorization check."""
MATCH_US: Final = 3.0
"""Cost of one match of a regular expression with a topic name."""
ASSIGN_US: Final = 12.0
"""Cost of one topic in the assignment of a member that joins a consumer group."""
OPERATIONS_US: Final = 40.0
"""Cost of all authorization checks on one resource."""
_NULL_TOPICS_SINCE: Final = 1
_MANY_GROUPS_SINCE: Final = 8
_PAGE_PARTITIONS_MAX: Final = 2000


def metadata(context: RequestContext, request: Any) -> float:
    """Return the cost of the topics in a Metadata response, and of their partitions."""
    topics = context.broker.logs.topics
    if context.broker.authorizer is None and request.topics and len(request.topics) == 1:  # the most frequent case
        only = topics.get(request.topics[0].name)
        return ROW_US if only is None else ROW_US * len(only.partitions)
    row_us = SHARED_ROW_US if context.broker.member is None else ROW_US
    authorized = context.broker.authorizer is not None
    each_us = ROW_US + QUESTION_US * authorized
    if authorized and request.include_topic_authorized_operations:
        each_us += OPERATIONS_US
    if request.topics is None or (not request.topics and context.api_version < _NULL_TOPICS_SINCE):
        every: float = each_us * len(topics) + row_us * partition_total(topics)
        return every
    named = (topics.get(item.name) for item in request.topics)
    shown: float = row_us * sum(len(topic.partitions) for topic in named if topic is not None)
    count: int = len(request.topics)
    return each_us * count + shown


def topic_pages(context: RequestContext, request: Any) -> float:
    """Return the cost of a page of partitions. A request for all topics adds a permission check per topic."""
    rows: int = min(max(request.response_partition_limit, 1), _PAGE_PARTITIONS_MAX)
    return ROW_US * rows + (0.0 if request.topics else QUESTION_US * len(context.broker.logs.topics))


def all_partitions(context: RequestContext, request: Any) -> float:
    """Return the cost of all partitions of the broker if the request names none (DescribeLogDirs, ElectLeaders), or
    else 0."""
    asked = request.topics if hasattr(request, "topics") else request.topic_partitions
    return ROW_US * partition_total(context.broker.logs.topics) if asked is None else 0.0


def committed(context: RequestContext, request: Any) -> float:
    """Return the cost of all committed offsets of the groups for which the request names no topics."""
    if context.api_version < _MANY_GROUPS_SINCE:
        return _committed(context, [request.group_id] if request.topics is None else [])
    return _committed(context, (group.group_id for group in request.groups if group.topics is None))


def _committed(context: RequestContext, group_ids: Iterable[str]) -> float:
    found = (context.broker.groups.find(group_id) for group_id in group_ids)
    return ROW_US * sum(len(group.offsets) for group in found if group is not None)


def members(context: RequestContext, request: Any) -> float:
    """Return the cost of the members of the described groups."""
    names = request.groups if hasattr(request, "groups") else request.group_ids
    found = (context.broker.groups.find(name) for name in names)
    return ROW_US * sum(group.member_count for group in found if group is not None)


def subscription(context: RequestContext, request: Any) -> float:
    """Return the cost of a subscription by regular expression: to match all topic names and to compute an
    assignment."""
    if not request.subscribed_topic_regex:
        return 0.0
    count: int = len(context.broker.logs.topics)
    return (MATCH_US + ASSIGN_US) * count


def all_groups(context: RequestContext, _request: Any) -> float:
    """Return the cost of all groups."""
    return (ROW_US + QUESTION_US * (context.broker.authorizer is not None)) * context.broker.groups.count


def all_transactions(context: RequestContext, _request: Any) -> float:
    """Return the cost of all transactional ids."""
    return (ROW_US + QUESTION_US * (context.broker.authorizer is not None)) * context.broker.transactions.count


def all_acls(context: RequestContext, _request: Any) -> float:
    """Return the cost of all ACLs."""
    authorizer = context.broker.authorizer
    return 0.0 if authorizer is None else ROW_US * len(authorizer)


def each_filter_all_acls(context: RequestContext, request: Any) -> float:
    """Return the cost of comparing every filter with every ACL."""
    return all_acls(context, request) * len(request.filters)


def all_quotas(context: RequestContext, _request: Any) -> float:
    """Return the cost of all quotas."""
    return ROW_US * len(context.broker.quotas.table.entries)


def all_users(context: RequestContext, _request: Any) -> float:
    """Return the cost of all users with SCRAM credentials."""
    return ROW_US * len(context.broker.logs.metadata.credentials)


def config_names(context: RequestContext, _request: Any) -> float:
    """Return the cost of all topics, and of the groups and client metrics subscriptions that have settings."""
    logs = context.broker.logs
    return ROW_US * (len(logs.topics) + len(logs.metadata.group_configs) + len(logs.metadata.client_metrics))


def producers(context: RequestContext, request: Any) -> float:
    """Return the cost of the producers of the requested partitions."""
    topics = context.broker.logs.topics
    total = 0
    for item in request.topics:
        topic = topics.get(item.name)
        if topic is not None:
            logs = (topic.partitions[index] for index in item.partition_indexes if 0 <= index < len(topic.partitions))
            total += sum(len(log.producers) for log in logs if log.producers is not None)
    return ROW_US * total
