"""What clients tell of what librdkafka logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cluster import plan
from tests.cluster.scene import KINDS_OF_BROKERS
from tests.cluster.workload import refusals
from tests.power.proof import BROKERS

if TYPE_CHECKING:
    import pytest

REFUSED = (
    "ERRSEQ [rdkafka#producer-1] [thrd:10.77.3.1:9092/3]: 10.77.3.1:9092/3: "
    "ProduceRequest for plain [2] with 3 message(s) failed due to skipped sequence numbers "
    "(PID{Id:57024,Epoch:1}, base seq 78 > next seq 77) caused by previous failed request "
    "(NOT_LEADER_FOR_PARTITION, actions Refresh,MsgNotPersisted, base seq 77..77, base msgid 78, 148ms ago): "
    "recovering and retrying"
)


def test_every_kind_of_brokers_is_counted() -> None:
    assert set(KINDS_OF_BROKERS) <= set(BROKERS)


def test_a_refusal_that_raises_an_epoch_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    logger = refusals()
    logger.debug("%s", REFUSED)
    logger.debug(
        "DRAIN [rdkafka#producer-1] [thrd:main]: All partitions drained, bumped epoch to PID{Id:57024,Epoch:2}"
    )
    place = plan.place_of("plain", 2)
    told = {"event": "refused", "id": 57024, "epoch": 1, "place": place, "sequence": 78}
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [told]
