"""A few spoiled exchanges of each kind; a broker in trouble is noticed. Hours of it: `make prove FAMILY=fuzz`."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.exchanges import EXCHANGES
from tests.kit.harness.sasl_broker import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.exchanges import Doors
    from tests.kit.processes.broker import BrokerProcess

pytestmark = pytest.mark.integration
COUNT = 150


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Doors]]:
    broker, doors = fuzz.broker_of(tmp_path_factory.mktemp("fuzz") / "broker", "release")
    with contextlib.closing(broker):
        yield broker, doors


@pytest.mark.parametrize("name", EXCHANGES)
def test_spoiled_exchanges_harm_nobody(fed: tuple[BrokerProcess, Doors], name: str) -> None:
    broker, doors = fed
    chance = random.Random(13)
    watch = fuzz.Watch(broker, doors)
    for _ in range(COUNT):
        EXCHANGES[name](doors, chance)
    watch.look()


def test_trouble_is_noticed(tmp_path: Path) -> None:
    broker, doors = fuzz.broker_of(tmp_path / "broker", "release")
    with contextlib.closing(broker):
        watch = fuzz.Watch(broker, doors)
        grown, watch.rss = watch.rss, -fuzz.GROWTH_MAX
        with pytest.raises(fuzz.Trouble, match="MiB more"):
            watch.look()
        watch.rss = grown
        watch.look()
        with broker.log_path.open("ab") as log:
            log.write(b"Traceback (most recent call last):\n" + bytes(200))
        with pytest.raises(fuzz.Trouble, match="Traceback"):
            watch.look()
        watch.look()
        with RawClient(doors.ports["SASL_PLAINTEXT"]) as client:
            assert client.plain("alice").error_code == 0
        with pytest.raises(fuzz.Trouble, match="signed in"):
            watch.look()
        broker.kill()
        with pytest.raises(fuzz.Trouble, match="died"):
            watch.look()
