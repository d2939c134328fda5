"""An unexpected exception in a thread of a cluster member: the member logs it and stops."""

from __future__ import annotations

import logging
import threading
from typing import NoReturn

import pytest

from kafkalite.base.clock import SystemClock
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.connection import ControllerConnection
from kafkalite.broker.cluster.control_types import SnapshotFooterRecord, SnapshotHeaderRecord, Voter, VotersRecord
from kafkalite.broker.cluster.image import Address as ListenerAddress
from kafkalite.broker.cluster.image import Image
from kafkalite.broker.cluster.lifecycle import Node, Times
from kafkalite.broker.cluster.member import Controllers, Member, once_each
from kafkalite.broker.cluster.quorum import Address
from kafkalite.errors import StartupError
from tests.kit.fakes.controller import ScriptedController, control_batch, data_batch

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
SNAPSHOT_HEADER, SNAPSHOT_FOOTER, VOTERS = 3, 4, 6
"""Types of control records."""


def member(controller: ScriptedController, **more: object) -> Member:
    node = Node(
        node_id=7,
        cluster_id=CLUSTER,
        incarnation=bytes([1]) * 16,
        addresses=(ListenerAddress("PLAINTEXT", "127.0.0.1", 1),),
        rack=None,
        directory_id=bytes([2]) * 16,
    )
    controllers = Controllers(voters={}, servers=(Address("127.0.0.1", controller.port),), listener="CONTROLLER")
    times = Times(registration_max=60, beat=0.1, session=1, start_max=600)
    return Member(node, controllers, times, SystemClock(), serves=True, on_fatal=lambda _error: None, **more)


def broken_for(thread_name: str):
    """Connections that break with what is no ConnectionFailed, for the thread of this name."""

    def connect(address: Address, client_id: str, timeout_s: float) -> ControllerConnection:
        if threading.current_thread().name == thread_name:
            raise ZeroDivisionError("nobody thought of it")
        return ControllerConnection.connect(address, client_id, timeout_s)

    return connect


@pytest.mark.parametrize("thread", ["kafkalite-metadata", "kafkalite-heartbeat"])
def test_thread_that_fails_ends_the_start_and_the_stop_returns(thread: str) -> None:
    with ScriptedController(CLUSTER) as controller:
        failing = member(controller, connect=broken_for(thread))
        failing.start()
        with pytest.raises(StartupError, match="nobody thought of it"):
            failing.wait_caught_up()
        failing.stop()


def test_listener_that_fails_holds_up_neither_others_nor_beats(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_before: Image, _now: Image) -> NoReturn:
        raise ZeroDivisionError("nobody thought of it")

    seen = []
    with ScriptedController(CLUSTER) as controller, caplog.at_level(logging.ERROR):
        controller.append(types.NoOpRecord())
        running = member(controller)
        running.listeners += [fail, lambda before, now: seen.append((before.offset, now.offset))]
        running.start()
        running.wait_caught_up()
        running.enter()
        running.stop()
    assert "could not apply all of the metadata" in caplog.text
    assert all(before < now for before, now in seen)
    assert [before for before, _ in seen[1:]] == [now for _, now in seen[:-1]]


def test_place_of_a_node_that_is_a_controller_too_is_refused() -> None:
    """Of a fixed quorum only ids are known."""
    with ScriptedController(CLUSTER) as controller:
        controller.append(types.RegisterControllerRecord(controller_id=7))
        running = member(controller)
        running.start()
        with pytest.raises(StartupError, match="is a controller of the cluster"):
            running.wait_caught_up()
        running.stop()


def voters_of(directory: int) -> tuple[int, VotersRecord]:
    """Node 7 is the quorum's, with the directory of this number."""
    return VOTERS, VotersRecord(voters=[Voter(voter_id=7, voter_directory_id=bytes([directory]) * 16)])


@pytest.mark.parametrize("directory", [2, 3])
def test_of_a_dynamic_quorum_it_is_the_directory_that_tells_a_controller_from_this_broker(directory: int) -> None:
    with ScriptedController(CLUSTER) as controller:
        controller.append(types.RegisterControllerRecord(controller_id=7))
        controller.append_control(voters_of(directory))
        running = member(controller)
        running.start()
        if directory == 2:
            with pytest.raises(StartupError, match="remove-controller"):
                running.wait_caught_up()
        else:
            running.wait_caught_up()
        running.stop()


def test_node_that_was_taken_out_of_the_quorum_may_be_exchanged_though_the_newest_snapshot_has_it() -> None:
    with ScriptedController(CLUSTER) as controller:
        header, footer = SnapshotHeaderRecord(), SnapshotFooterRecord()
        snapshot = (
            control_batch(0, 1, (SNAPSHOT_HEADER, header), voters_of(2))
            + data_batch(2, 1, types.RegisterControllerRecord(controller_id=7))
            + control_batch(3, 1, (SNAPSHOT_FOOTER, footer))
        )
        controller.snapshot = (10, 1, snapshot)
        controller.append_control((VOTERS, VotersRecord(voters=[Voter(voter_id=8)])))
        running = member(controller)
        running.start()
        running.wait_caught_up()
        running.stop()
    assert 7 in running.image.controllers
    assert list(running.image.voters) == [8]


def test_what_all_controllers_say_is_said_once() -> None:
    first, second, third = (Address(f"c{number}", 9093) for number in (1, 2, 3))
    reasons = {
        first: f"no TLS with the controller at {first}: expired",
        second: f"no TLS with the controller at {second}: expired",
        third: f"cannot connect to the controller at {third}: Connection refused",
    }
    assert once_each(reasons) == [
        "no TLS with the controller at c1:9093, c2:9093: expired",
        "cannot connect to the controller at c3:9093: Connection refused",
    ]
