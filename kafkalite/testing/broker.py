"""A broker for tests of programs that use Kafka: restarted in place, killed, and made to fail.

    with KafkaBroker() as broker:
        broker.create_topic("orders", 3)
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        broker.restart(kill=True)

The fixture `kafka_broker` is one. Its port is kept while it is down, so that nobody else gets it meanwhile: clients are
refused then, and find it again where it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalite.broker import Broker
from kafkalite.broker.handlers.error_answers import MetadataView
from kafkalite.broker.net.listener import bind_only
from kafkalite.testing.faults import Faults

if TYPE_CHECKING:
    import socket

    from kafkalite._native.serve.connection import Connection
    from kafkalite.settings.listeners import Listener
    from kafkalite.testing.faults import Code, Delay, Disconnection, Failure


class KafkaBroker(Broker):
    """A Broker, whose arguments it takes, that a test can restart, kill and make fail.

    The fixture's answers acks=all from the page cache (`flush_on_acks_all=False`), since tests need no power cut; one
    that is made by hand, from the disk, as any Broker does.
    """

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]  # Broker's own
        self.faults = self._faults = Faults(self._view)
        self._kept: dict[Listener, socket.socket] = {}

    def restart(self, *, kill: bool = False) -> None:
        """Stops and starts again, on the same port with the same data; clients lose their connections.

        `kill` stops it as a crash of its process does: nothing is flushed, tidied up or written down, no client is
        answered any more, and the start recovers. What was acknowledged is there all the same.
        """
        self._check_own()
        if not self.running:
            raise RuntimeError("the broker is not running")
        self._stop_parts(crash=kill)
        self.failed.clear()
        self.start()

    def stop(self, reason: str = "stop was called") -> None:
        """As Broker.stop; the port is free again."""
        if not self._origin.is_here:
            return
        super().stop(reason)
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()

    def fail(self, api: str | int, code: Code, times: int | None = 1) -> Failure:
        """The next `times` requests of an API are answered with an error, and have no effect.

        `api` is its name as Kafka spells it ("Produce", "OffsetCommit") or its key; `code` the error's name, its number
        or one of kafkalite's exceptions. `times=None` goes on until it is ended. The Fault that comes back counts the
        requests that met it. ValueError for an API or error that there is not.

        The code stands wherever the answer has room for one: for each topic, partition or group that was asked for. A
        Produce with acks=0 has no answer, so its connection is closed, as Kafka does.
        """
        self._check_own()
        return self.faults.fail(api, code, times)

    def disconnect(self, api: str | int, times: int | None = 1) -> Disconnection:
        """The next `times` requests of an API have no effect, and their connections are closed without an answer."""
        self._check_own()
        return self.faults.disconnect(api, times)

    def delay(self, api: str | int, seconds: float, times: int | None = None) -> Delay:
        """Answers of an API leave so much later, and what stands after them on their connection too.

        The request takes effect at once. `times=None` goes on until it is ended.
        """
        self._check_own()
        return self.faults.delay(api, seconds, times)

    def heal(self) -> None:
        """Ends every fault; answers that are delayed leave at once."""
        self._check_own()
        self.faults.end_all()

    def _stop_parts(self, *, crash: bool = False) -> bool:
        clean = super()._stop_parts(crash=crash)
        self.faults.let_go()  # for connections that are gone
        return clean

    def _place(self, wanted: Listener) -> Listener:
        if wanted.port:
            return wanted
        if wanted not in self._kept:
            self._kept[wanted] = bind_only(wanted.host, 0)
        return replace(wanted, port=int(self._kept[wanted].getsockname()[1]))

    def _view(self, connection: Connection) -> MetadataView:
        return MetadataView(
            self.config.node_id, self.logs.cluster_id, connection.listener.endpoint, list(self.logs.topics)
        )
