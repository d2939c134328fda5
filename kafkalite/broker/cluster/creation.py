"""Create missing topics: send CreateTopics to the controller, in the name of the client that asked for a topic.

The topics of the coordinators are created in this broker's name. While a request for a topic is in flight, the topic is
not requested again. Clients do not get the controller's response: they ask for the topic again and see the result.

Source: AutoTopicCreationManager of Kafka 4.1. Any thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api, encode_request, header
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.cluster.forwarding import Outcome

logger = logging.getLogger("kafkalite.broker.cluster")
repeats = RepeatLogger(logger, lines=EVENT_LINES)

TIMEOUT_MS: Final = 30_000
CONTROLLERS_CHOICE: Final = -1
TOPICS_MAX: Final = 1000
"""The most names in flight; a further name is requested when a client asks for it again."""

_MADE: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class Creation:
    """Requests the creation of topics.

    `forward` and `ask` are the member's methods; `apis` returns the versions of the APIs that the controller supports.
    """

    def __init__(
        self,
        forward: Callable[[bytes, str, str], Deferred[Outcome]],
        apis: Callable[[], Mapping[int, tuple[int, int]]],
        ask: Callable[[int, object], Deferred[Any]],
    ) -> None:
        self._forward = forward
        self._ask = ask
        self._apis = apis
        self._lock = threading.Lock()
        self._asked: set[str] = set()

    def ask(self, names: Iterable[str], client_id: str | None, principal: str, host: str) -> None:
        """Request the creation of these topics. A topic for which a request is in flight is left out.

        The controller's settings determine the numbers of partitions and replicas, which are -1 in the request.
        """
        with self._lock:
            fresh = [name for name in dict.fromkeys(names) if name not in self._asked]
            del fresh[max(0, TOPICS_MAX - len(self._asked)) :]
            self._asked.update(fresh)
        if not fresh:
            return
        topics = [
            CreatableTopic(name=name, num_partitions=CONTROLLERS_CHOICE, replication_factor=CONTROLLERS_CHOICE)
            for name in fresh
        ]
        self._send(topics, client_id, principal, host)

    def ask_internal(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Request the creation of a coordinator's topic in this broker's name. If a request for it is in flight, do
        nothing.
        """
        with self._lock:
            if name in self._asked:
                return
            self._asked.add(name)
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        def answered(response: Any) -> None:
            with self._lock:
                self._asked.discard(name)
            code = response.topics[0].error_code if response is not None and response.topics else None
            if code not in _MADE:
                text = response.topics[0].error_message if code else "no controller answered"
                repeats.warning("could not create a coordinator topic: %s", text, extra=fields(topic=name))

        self._ask(api.CREATE_TOPICS, request).then(answered)

    def _send(self, topics: list[CreatableTopic], client_id: str | None, principal: str, host: str) -> None:
        version = min(self._apis().get(api.CREATE_TOPICS, (0, 0))[1], api.APIS[api.CREATE_TOPICS].newest)
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        body = encode_request(api.CREATE_TOPICS, version, request)
        head = header.encode_request_header(api.CREATE_TOPICS, version, 0, client_id)

        def answered(outcome: Outcome) -> None:
            with self._lock:
                self._asked.difference_update(topic.name for topic in topics)
            logger.debug(
                "asked the controller to create topics", extra=fields(topics=len(topics), code=outcome.code.name)
            )

        self._forward(head + body, principal, host).then(answered)
