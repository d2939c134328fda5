"""Run the test kit's broker in this process: a Broker that tests can restart, kill and make fail.

The process is that of a test (`in_process=True`) or the broker's own (`kafkalite.testing.child`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from kafkalite.broker import Broker
from kafkalite.broker.handlers.error_answers import MetadataView
from kafkalite.broker.net.listener import bind_only
from kafkalite.broker.replaced_functions import check_system
from kafkalite.testing.faults import Faults

if TYPE_CHECKING:
    import socket

    from kafkalite._native.serve.connection import Connection
    from kafkalite.settings.listeners import Listener
    from kafkalite.testing.faults import Code, Delay, Disconnection, Failure


class InProcessBroker(Broker):
    """A Broker that a test can restart, kill and make fail. KafkaBroker documents the methods."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]  # Broker's own
        self.faults = self._faults = Faults(self._view)
        self._kept: dict[Listener, socket.socket] = {}
        """Sockets that keep ports chosen by the system bound during a restart, so that no other program gets them."""

    def start(self) -> Self:
        """Start the broker, after protecting its files from pyfakefs. KafkaBroker.start has the details."""
        keep_files()
        return super().start()

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, with `kill` as in a crash, and start it again. KafkaBroker.restart has the details."""
        self._check_own()
        if not self.running:
            raise RuntimeError("the broker is not running")
        check_system()
        self._stop_parts(crash=kill)
        self.failed.clear()
        self.start()

    def stop(self, reason: str = "stop was called") -> None:
        """Stop as Broker.stop does, and release the port."""
        if not self._origin.is_here:
            return
        super().stop(reason)
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()

    def fail(self, api: str | int, code: Code, times: int | None = 1) -> Failure:
        """Answer the next `times` requests of an API with an error. KafkaBroker.fail has the details."""
        self._check_own()
        return self.faults.fail(api, code, times)

    def disconnect(self, api: str | int, times: int | None = 1) -> Disconnection:
        """Close the connection of the next `times` requests of an API. KafkaBroker.disconnect has the details."""
        self._check_own()
        return self.faults.disconnect(api, times)

    def delay(self, api: str | int, seconds: float, times: int | None = None) -> Delay:
        """Delay the responses to an API. KafkaBroker.delay has the details."""
        self._check_own()
        return self.faults.delay(api, seconds, times)

    def heal(self) -> None:
        """End every fault. KafkaBroker.heal has the details."""
        self._check_own()
        self.faults.end_all()

    def _stop_parts(self, *, crash: bool = False) -> bool:
        clean = super()._stop_parts(crash=crash)
        self.faults.let_go()  # of closed connections
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


def keep_files() -> None:
    """Protect the modules of the broker from pyfakefs, if pyfakefs is loaded.

    pyfakefs replaces `os` and other names in every module that uses them, except in modules that it skips by name.
    """
    patcher: Any = getattr(sys.modules.get("pyfakefs.fake_filesystem_unittest"), "Patcher", None)
    names = {name for name in sys.modules if name.startswith("kafkalite.")}
    if patcher is not None and not names <= patcher.SKIPNAMES:
        patcher.SKIPNAMES.update(names)
        patcher.clear_fs_cache()  # it caches its findings in modules
