"""Faults of a cluster, each as a context: active within, over afterwards."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, NamedTuple

from tests.cluster.links import ALL
from tests.cluster.scene import SESSION_S, kill, send_signal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.cluster.scene import Scene
    from tests.kit.processes.mixed_cluster import Server

SHORT_S = (0.3, 0.7 * SESSION_S)
LONG_S = (1.3 * SESSION_S, 2.5 * SESSION_S)
"""Shorter and longer than a session: no session expires, or each one does."""
ANY_S = (0.0, 2.0 * SESSION_S)


class Fault(NamedTuple):
    """A fault; its context yields the name of the hosts it hits."""

    happen: Callable[[Scene, random.Random], AbstractContextManager[str]]
    holds_s: tuple[float, float]


def some(scene: Scene, chance: random.Random, count: int = 1) -> list[int]:
    """Brokers' numbers."""
    return chance.sample(sorted(scene.brokers), count)


def killing(count: int) -> Callable[[Scene, random.Random], AbstractContextManager[str]]:
    """Return the fault that kills `count` brokers at once with kill -9, and restarts them afterwards."""

    @contextlib.contextmanager
    def happen(scene: Scene, chance: random.Random) -> Iterator[str]:
        numbers = some(scene, chance, count)
        for number in numbers:
            kill(scene.brokers[number])
        yield f"brokers {numbers}"
        for number in numbers:
            scene.launch(number)

    return happen


@contextlib.contextmanager
def stopped(scene: Scene, chance: random.Random) -> Iterator[str]:
    """SIGTERM: it hands its partitions over first."""
    [number] = some(scene, chance)
    scene.brokers[number].stop()
    yield f"broker {number}"
    scene.launch(number)


@contextlib.contextmanager
def frozen(server: Server, name: str) -> Iterator[str]:
    """SIGSTOP, SIGCONT."""
    send_signal(server, signal.SIGSTOP)
    yield name
    send_signal(server, signal.SIGCONT)


def paused(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    [number] = some(scene, chance)
    return frozen(scene.brokers[number], f"broker {number}")


@contextlib.contextmanager
def link_down(scene: Scene, chance: random.Random) -> Iterator[str]:
    [number] = some(scene, chance)
    scene.links.down(number)
    yield f"broker {number}"
    scene.links.mend()


@contextlib.contextmanager
def severed(scene: Scene, *directions: tuple[int, int]) -> Iterator[str]:
    """Drop all packets in these directions, silently."""
    for source, target in directions:
        scene.links.cut(source, target)
    yield f"from, to: {directions}"
    scene.links.mend()


def mute(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """A broker receives packets but can send none."""
    [number] = some(scene, chance)
    return severed(scene, (number, ALL))


def deaf(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    [number] = some(scene, chance)
    return severed(scene, (ALL, number))


def parted(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """Two brokers, which everybody else reaches."""
    one, other = some(scene, chance, 2)
    return severed(scene, (one, other), (other, one))


def one_way(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """From a broker to another one."""
    one, other = some(scene, chance, 2)
    return severed(scene, (one, other))


def alone(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """A broker without the others; clients and the controller reach it."""
    [number] = some(scene, chance)
    others = [other for other in scene.brokers if other != number]
    return severed(scene, *((number, other) for other in others), *((other, number) for other in others))


def island(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """A broker that only clients reach; the others continue without it."""
    [number] = some(scene, chance)
    rest = [*scene.controllers, *(other for other in scene.brokers if other != number)]
    return severed(scene, *((number, other) for other in rest), *((other, number) for other in rest))


def unruled(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """A broker cut off from the controllers, or from the active one of several; it keeps serving as leader."""
    [number] = some(scene, chance)
    hosts = [controller(scene, chance)] if chance.random() < 0.3 else [*scene.controllers]
    ways = ([(number, host) for host in hosts], [(host, number) for host in hosts])
    return severed(scene, *chance.choice([[*ways[0], *ways[1]], *ways]))


def controller(scene: Scene, chance: random.Random) -> int:
    """The host of one of them, most often of the active one."""
    active = scene.active_controller() if chance.random() < 0.75 else None
    return chance.choice([*scene.controllers]) if active is None else active


@contextlib.contextmanager
def controller_killed(scene: Scene, chance: random.Random) -> Iterator[str]:
    """kill -9 of a controller, and now and then of a broker before it is back."""
    host = controller(scene, chance)
    kill(scene.controllers[host])
    numbers = some(scene, chance) if chance.random() < 0.3 else []
    for number in numbers:
        kill(scene.brokers[number])
    yield f"controller {host}, brokers {numbers}"
    scene.controllers[host].launch()
    for number in numbers:
        scene.launch(number)


def controller_paused(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    host = controller(scene, chance)
    return frozen(scene.controllers[host], f"controller {host}")


def controller_cut(scene: Scene, chance: random.Random) -> AbstractContextManager[str]:
    """A controller cut off in one direction or both."""
    host = controller(scene, chance)
    return severed(scene, *chance.choice([((host, ALL), (ALL, host)), ((host, ALL),), ((ALL, host),)]))


def exchanged(*, clean: bool) -> Callable[[Scene, random.Random], AbstractContextManager[str]]:
    """A broker of the other kind takes the place of one that was stopped, or killed, and leads again what it led."""

    @contextlib.contextmanager
    def happen(scene: Scene, chance: random.Random) -> Iterator[str]:
        number, kind = scene.exchange(clean=clean)
        yield f"broker {number}, {kind} from now on"
        scene.launch(number)
        scene.wait_whole()
        scene.check_tree(number)
        scene.wait_led(number)

    return happen


EXCHANGE = "exchange"
EXCHANGES = (EXCHANGE, "exchange killed")
FAULTS = {
    "kill": Fault(killing(1), ANY_S),
    "kill two": Fault(killing(2), ANY_S),
    "kill all": Fault(killing(3), SHORT_S),
    "stop": Fault(stopped, ANY_S),
    "pause": Fault(paused, SHORT_S),
    "long pause": Fault(paused, LONG_S),
    "link down": Fault(link_down, ANY_S),
    "mute": Fault(mute, LONG_S),
    "deaf": Fault(deaf, LONG_S),
    "parted": Fault(parted, LONG_S),
    "one way": Fault(one_way, LONG_S),
    "alone": Fault(alone, LONG_S),
    "island": Fault(island, LONG_S),
    "unruled": Fault(unruled, LONG_S),
    "controller killed": Fault(controller_killed, ANY_S),
    "controller paused": Fault(controller_paused, LONG_S),
    "controller cut": Fault(controller_cut, LONG_S),
    EXCHANGES[0]: Fault(exchanged(clean=True), (0.0, 0.0)),
    EXCHANGES[1]: Fault(exchanged(clean=False), (0.0, 0.0)),
}


def draw(chance: random.Random, *, exchanges: bool = False) -> list[str]:
    """All kinds in some order, kills twice: they are what happens most. With `exchanges` each second one is one."""
    kinds = [*(kind for kind in FAULTS if kind not in EXCHANGES), "kill", "kill"]
    chance.shuffle(kinds)
    return [each for kind in kinds for each in ((chance.choice(EXCHANGES), kind) if exchanges else (kind,))]
