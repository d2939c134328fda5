"""The example of docs/failures.md by each strategy, killed with an order in hand, and started again."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kafkalite.client import Client
from kafkalite.wire.record.columns import Record
from tests.kit.harness.failing_groups import records, small_broker
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration
PROGRAM = REPOSITORY / "examples" / "failures" / "billing.py"
ORDERS = [b"good", b"late", b"broken", b"good"]
INVOICES = {"ignore": {0, 3}, "forever": {0, 1, 3}, "here": {0, 1, 3}, "topics": {0, 1, 3}}
TIMEOUT_S = 60.0


def keys(client: Client, topic: str) -> Counter[bytes | None]:
    return Counter(record.key for record in records(client, topic))


@pytest.mark.parametrize("strategy", sample(reversed(INVOICES), 2))
def test_a_kill_with_an_order_in_hand_loses_and_doubles_nothing(strategy: str, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def start(pause_at: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PAUSE_AT": pause_at}
        with out.open("wb") as file:
            words = [sys.executable, str(PROGRAM), strategy, broker.bootstrap_servers]
            return subprocess.Popen(words, stdout=file, env=environment)

    with (
        small_broker() as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        for topic in ("orders", f"invoices-{strategy}"):
            client.admin.create_topic(topic, 1)
        client.produce("orders", 0, [Record(-1, -1, b"%d" % n, value) for n, value in enumerate(ORDERS)])
        process = start("handling 3")
        wait_until(lambda: "handling 3\n" in out.read_text(), TIMEOUT_S, "the last order is in hand")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = start("")
        invoices = Counter(b"%d" % number for number in INVOICES[strategy])
        try:
            wait_until(lambda: keys(client, f"invoices-{strategy}") == invoices, TIMEOUT_S, "invoices", 0.1)
            dead = f"dlq.billing-{strategy}.orders"
            wait_until(lambda: keys(client, dead) == {b"2": 1}, TIMEOUT_S, "the letter", 0.1)
        finally:
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
