"""What commands that serve share."""

from __future__ import annotations

import gc
import threading

import pytest

from kafkalite import Broker
from kafkalite.cli.serving import ended_by_dead_threads, without_collections
from kafkalite.cli.start import spare_collector
from tests.kit.processes.broker import wait_until


@pytest.fixture
def nothing_frozen():
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_what_is_imported_is_set_aside_and_cycles_are_collected_again() -> None:
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("nothing_frozen")
def test_a_start_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="planted"), without_collections():
        raise ValueError("planted")
    assert gc.isenabled()


@pytest.mark.slow  # its collections visit all that the tests of a run have imported
@pytest.mark.usefixtures("nothing_frozen")
def test_logs_are_left_out_of_collections_until_one_of_them_goes() -> None:
    """They are cycles, with possibly megabytes of indexes: permanently excluded, they would never be freed."""
    with Broker() as broker:
        broker.create_topic("left-out")
        kind = type(broker.logs.topics["left-out"].partitions[0])
        spare_collector(broker.logs)
        broker.create_topic("new")
        broker.delete_topic("new")
        assert gc.get_freeze_count() > 0
        broker.delete_topic("left-out")
        wait_until(lambda: gc.get_freeze_count() == 0, 60, "the collector looks at everything again")

        def is_given_back() -> bool:
            """Once threads that had it in hand have let it go; other tests' brokers have logs of other names."""
            gc.collect()
            return not any(isinstance(one, kind) and one.name == "left-out-0" for one in gc.get_objects())

        wait_until(is_given_back, 60, "the log is given back")


class Server:
    def __init__(self) -> None:
        self.failed = threading.Event()

    def start(self) -> None: ...

    def stop(self, reason: str) -> None: ...


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize(("name", "ends"), [("kafkalite-net-0", True), ("a library's", False)])
def test_a_thread_of_ours_that_dies_ends_the_server(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: type[BaseException], *, ends: bool
) -> None:
    def die() -> None:
        raise kind("planted")

    server = Server()
    monkeypatch.setattr(threading, "excepthook", lambda what: None)
    hook = threading.excepthook
    with ended_by_dead_threads(server):
        thread = threading.Thread(target=die, name=name)
        thread.start()
        thread.join()
    assert server.failed.is_set() == ends
    assert threading.excepthook is hook
