"""A client that has signed in is served as any other: no Python for a request, and none that others do without."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness import wire
from tests.kit.harness.sasl_broker import RawClient, SaslBroker, answer, request

COUNT = 500
LOOP = {"BareSelector.ready", "Worker._change_interest", "Worker._linger", "Worker._timeout"}
"""Functions that a turn of the loop calls or not, depending on whether it slept and on further turns."""


class Calls:
    """Python functions that the network threads call."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and threading.current_thread().name.startswith("kafkalite-net"):
            self.names[frame.f_code.co_qualname] += 1


@pytest.fixture
def calls() -> Iterator[Calls]:
    found = Calls()
    threading.setprofile(found)
    yield found
    threading.setprofile(None)


def produce(client: RawClient) -> None:
    batch = wire.batch_of([wire.Record(None, b"v")])
    topic = TopicProduceData(name="hot", partition_data=[PartitionProduceData(index=0, records=batch)])
    data = request(api.PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]))
    client.send(data * COUNT)
    for _ in range(COUNT):
        found = answer(api.PRODUCE, 9, client.frame())
        assert found.responses[0].partition_responses[0].error_code == 0


def test_no_python_function_is_called_for_a_request(tmp_path: Path, calls: Calls) -> None:
    with SaslBroker(tmp_path, num_network_threads="1", connections_max_reauth_ms="3600000") as sasl:
        sasl.broker.create_topic("hot")
        called = {}
        for listener in ("PLAINTEXT", "SASL"):
            with sasl.connect(listener) as client:
                if listener == "SASL":
                    assert client.plain().error_code == 0
                produce(client)
                assert calls.names, "the loop that took the connection in is Python"
                calls.names.clear()
                produce(client)
                called[listener] = Counter(calls.names)
        # A turn of the loop serves all requests that have arrived, so each function is called far less than once a
        # request.
        for names in called.values():
            assert max(names.values(), default=0) < COUNT / 2
        assert not [name for name in called["SASL"] if "SignIn" in name]
        assert called["SASL"].keys() <= called["PLAINTEXT"].keys() | LOOP
