"""An actor knows which process of the run it is connected to, across all crashes and restarts."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.power.world import Actor, Gone, World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A world whose broker listens, and is nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        broker: Any = SimpleNamespace(port=port, classic_port=port, start=lambda: None)
        yield World(broker, 1, {})


def test_process_that_was_waited_for_is_the_one_connected_to(world: World) -> None:
    world.serve()
    actor = Actor(world, "a")
    actor._connect(world.wait())
    actor._classic_connection()
    assert actor.run == 0
    actor._disconnect()


def test_later_process_on_the_same_port_is_not_taken_for_the_earlier_one(world: World) -> None:
    world.serve()
    actor = Actor(world, "a")
    actor._connect(world.wait())
    world.pause()
    with pytest.raises(Gone):
        actor._classic_connection()
    world.serve()
    with pytest.raises(Gone):
        actor._connect(0)
    actor._disconnect()
