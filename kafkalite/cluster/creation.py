"""Topics that are made because somebody asked for them: the controller is asked, in the client's name.

The controller's settings say how many partitions and replicas there are (-1 for each). A name is asked for once at a
time, however many clients want it; what the controller says is dropped: clients ask again, and see what came of it.

Source: AutoTopicCreationManager of Kafka 4.1. Any thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.logging import fields
from kafkalite.protocol import api, encode_request, header
from kafkalite.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.cluster.forwarding import Outcome
    from kafkalite.deferred import Deferred

logger = logging.getLogger("kafkalite.cluster")

TIMEOUT_MS: Final = 30_000
CONTROLLERS_CHOICE: Final = -1
TOPICS_MAX: Final = 1000
"""Names that are asked for at a time, of all clients; those beyond are asked for when somebody asks again."""


class Creation:
    """See the module. `forward` is the member's; `apis` gives what versions the controller serves."""

    def __init__(
        self,
        forward: Callable[[bytes, str, str], Deferred[Outcome]],
        apis: Callable[[], Mapping[int, tuple[int, int]]],
    ) -> None:
        self._forward = forward
        self._apis = apis
        self._lock = threading.Lock()
        self._asked: set[str] = set()

    def ask(self, names: Iterable[str], client_id: str | None, principal: str, host: str) -> None:
        """Has these topics made, those that nobody has asked for already."""
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
        version = min(self._apis().get(api.CREATE_TOPICS, (0, 0))[1], api.APIS[api.CREATE_TOPICS].newest)
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        body = encode_request(api.CREATE_TOPICS, version, request)
        head = header.encode_request_header(api.CREATE_TOPICS, version, 0, client_id)

        def answered(outcome: Outcome) -> None:
            with self._lock:
                self._asked.difference_update(fresh)
            logger.debug("topics were asked for", extra=fields(topics=len(fresh), code=outcome.code.name))

        self._forward(head + body, principal, host).then(answered)
