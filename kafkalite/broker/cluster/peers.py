"""Send requests to the other brokers of a cluster, in batches: one queue (`Lane`) per broker and API.

    lane(node, api).put(item) ─▶ the waiting items, together ─▶ build ─▶ request ─▶ settle(items, answer or None)

An *item* is, for example, a transaction marker. A lane has its own thread and connection (`Brokers`), and one request
in flight. Items that arrive during a request wait for a later one.

Any thread may call `put`. `settle` is called on the lane's thread, or, once the lane stops, by `put` or `stop`.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkalite.base.executors import THREADS
from kafkalite.base.logging import fields
from kafkalite.broker.cluster.connection import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from kafkalite.base.executors import Executors
    from kafkalite.broker.cluster.brokers import Brokers
    from kafkalite.broker.cluster.connection import ControllerConnection
    from kafkalite.broker.cluster.quorum import Address

    Says: TypeAlias = Callable[[Any], tuple[Hashable, Hashable]]

logger = logging.getLogger("kafkalite.broker.cluster")

CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
"""Kafka's request.timeout.ms."""
ITEMS_MAX: Final = 1000
"""The most items of one request."""


def _that_agree(waiting: list[Any], says: Says | None) -> tuple[list[Any], list[Any]]:
    """Split the waiting items into (items that can be in one request together, the rest).

    A response names the subject of an item, for example a producer id, and not the item. So two different items with
    the same subject cannot be in one request.
    """
    if says is None:
        return waiting[:ITEMS_MAX], waiting[ITEMS_MAX:]
    said: dict[Hashable, Hashable] = {}
    together: list[Any] = []
    left: list[Any] = []
    for item in waiting:
        about, what = says(item)
        fits = len(together) < ITEMS_MAX and said.setdefault(about, what) == what
        (together if fits else left).append(item)
    return together, left


class Lane:
    """Queues the items for one API of one broker, and sends them in batches.

    A lane sends nothing twice. If there is no response, the sender decides whether to put the items again.
    """

    def __init__(
        self,
        name: str,
        brokers: Brokers,
        node_id: int,
        request: tuple[int, int],
        build: Callable[[Sequence[Any]], object],
        settle: Callable[[Sequence[Any], Any], None],
        says: Says | None,
        client_id: str,
        executors: Executors,
    ) -> None:
        """Start a lane and its thread. `request` has the API's key and its oldest acceptable version.

        `build`, `settle` and `says`: see `Peers.lane`.
        """
        self._name = name
        self._brokers = brokers
        self._node_id = node_id
        self._key, self._oldest = request
        self._build = build
        self._settle = settle
        self._says = says
        self._client_id = client_id
        self._worker = executors.worker(name, self._turn)
        self._waiting: list[Any] = []  # guarded by the worker's lock, as the next
        self._stopping = False
        self._connection: ControllerConnection | None = None
        self._answers = True  # whether the broker answered the last request
        self._worker.start()

    def put(self, item: Any) -> None:
        """Add an item to the next request. After `stop`, call `settle` at once, without an answer."""
        with self._worker.lock:
            late = self._stopping
            if not late:
                self._waiting.append(item)
                self._worker.call_locked()
        if late:
            self._settle([item], None)

    def stop_soon(self) -> None:
        """Accept no more items, and end the request in flight."""
        with self._worker.lock:
            self._stopping = True
        if self._connection is not None:
            self._connection.abort()

    def stop(self) -> None:
        """End the request in flight, and settle waiting items without an answer. This may wait for a connection
        attempt.
        """
        self.stop_soon()
        self._worker.stop()
        if self._connection is not None:
            self._connection.close()
        left, self._waiting = self._waiting, []
        if left:
            self._settle(left, None)

    def _turn(self) -> float | None:
        with self._worker.lock:
            if self._stopping or not self._waiting:
                return None
            items, self._waiting = _that_agree(self._waiting, self._says)
        answer = self._ask(items)
        try:
            self._settle(items, answer)
        except Exception:
            logger.exception("handling a response from another broker failed", extra=fields(lane=self._name))
        return 0.0

    def _ask(self, items: Sequence[Any]) -> Any:
        """Return the response, or None."""
        address = self._brokers.address(self._node_id)
        if address is None:
            return None
        try:
            connection = self._opened(address)
            version = connection.version(self._key, self._oldest)
            answer = connection.request(self._key, version, self._build(items), REQUEST_TIMEOUT_S)
        except ConnectionFailed as error:
            news = self._answers and not self._stopping
            logger.log(logging.WARNING if news else logging.DEBUG, "%s", error)
            self._answers = False
        except Exception:
            logger.exception("could not send a request to another broker", extra=fields(lane=self._name))
        else:
            self._answers = True
            return answer
        return None

    def _opened(self, address: Address) -> ControllerConnection:
        present = self._connection
        if present is not None and present.address == address and not present.closed:
            return present
        if present is not None:
            present.close()
        opened = self._connection = self._brokers.connect(address, self._client_id, CONNECT_TIMEOUT_S)
        if self._stopping:
            opened.close()
            raise ConnectionFailed("the broker is stopping")
        return opened


class Peers:
    """The lanes to the other brokers. `node_id` is this broker's."""

    def __init__(self, brokers: Brokers, node_id: int, *, executors: Executors = THREADS) -> None:
        self._brokers = brokers
        self._client_id = f"broker-{node_id}-peer"
        self._executors = executors
        self._lock = threading.Lock()
        self._lanes: dict[tuple[int, int], Lane] = {}  # guarded by _lock
        self._stopped = False

    def lane(
        self,
        node_id: int,
        api_key: int,
        oldest: int,
        build: Callable[[Sequence[Any]], object],
        settle: Callable[[Sequence[Any], Any], None],
        says: Says | None = None,
    ) -> Lane:
        """Return the lane for an API of a broker; the first call creates it.

        `build` makes a request from items. `settle` gets the items and the response, or None without a response. `says`
        returns (subject, content) of an item: a request never has two contents for one subject.
        """
        with self._lock:
            found = self._lanes.get((node_id, api_key))
            if found is None:
                found = self._lanes[node_id, api_key] = Lane(
                    f"kafkalite-peer-{node_id}-{api_key}",
                    self._brokers,
                    node_id,
                    (api_key, oldest),
                    build,
                    settle,
                    says,
                    self._client_id,
                    self._executors,
                )
                if self._stopped:
                    found.stop()
            return found

    def stop(self) -> None:
        """Stop all lanes. Lanes that are created later do not send."""
        with self._lock:
            self._stopped = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop_soon()
        for lane in lanes:
            lane.stop()
