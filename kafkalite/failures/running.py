"""A member in one call: its client, its runner, and an end.

Thread rule: the calling thread is the member's until it ends; `stop` may be set from anywhere.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client import Client
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.client.security import Security
    from kafkalite.failures.events import Alarm, Failure, Message
    from kafkalite.failures.policy import Policy

SESSION_TIMEOUT_S: Final = 15.0


def run(
    policy: Policy,
    handler: Callable[..., Any],
    bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
    *,
    stop: threading.Event | None = None,
    member: str | None = None,
    workers: int = 1,
    security: Security | None = None,
    on_alarm: Callable[[Alarm], None] | None = None,
    on_failed: Callable[[Message, Failure], object] | None = None,
    on_moved: Callable[[Message, str, str], object] | None = None,
    create_topics: bool = True,
    on_start: Callable[[Runner], None] | None = None,
    **options: Any,
) -> str:
    """Handles records by the policy, with the columnar client, until `stop` is set; or why it ended by itself.

    A `member` with a name is a static one (KIP-345): started again it has its partitions at once, also when it died.
    Options are those of Runner, and the others a GroupReader's. `on_start` is given the runner, for its metrics.
    """
    with Client(bootstrap_servers, client_id="kafkalite-failures", security=security) as client, client.twin() as other:
        if member is not None:
            options.setdefault("instance_id", member)
        name = member or f"{random.getrandbits(48):012x}"
        port = ColumnarPort(
            client, f"kafkalite-failures-{policy.group}-{name}", **{"session_timeout_s": SESSION_TIMEOUT_S, **options}
        )
        runner = Runner(
            policy,
            handler,
            port,
            other,
            member=name,
            workers=workers,
            on_alarm=on_alarm,
            on_failed=on_failed,
            on_moved=on_moved,
            create_topics=create_topics,
        )
        if on_start is not None:
            on_start(runner)
        return runner.run(stop or threading.Event())
