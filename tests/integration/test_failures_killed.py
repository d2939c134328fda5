"""A thousand orders and three kills, by each strategy and with each client: none is lost, and none is blamed."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kafkalite.client import Client
from kafkalite.failures.rows import State
from kafkalite.model import TopicPartition
from tests.kit.harness.failing_groups import broker_process, is_done, records, rows_of
from tests.kit.processes import killed_member
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.compat]
COUNT = 1000
KILL_AT = (150, 220, 90)
"""The calls of the handler, of each life, at which the process is killed."""
KILL_S = 180.0
"""kafka-python and aiokafka come back only when the broker has given up their earlier life, after 45 s."""
SAMPLE = {("confluent", "topics")}
CASES = [
    pytest.param(client, strategy, marks=() if (client, strategy) in SAMPLE else pytest.mark.slow)
    for client in killed_member.CLIENTS
    for strategy in killed_member.STRATEGIES
]


def start(servers: str, topic: str, client: str, strategy: str, log: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, killed_member.__file__, servers, topic, client, strategy, str(log), *more]
    with log.with_suffix(".out").open("ab") as out:
        return subprocess.Popen(words, env={"PYTHONPATH": str(REPOSITORY)}, stdout=out, stderr=out)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("client", "strategy"), CASES)
@pytest.mark.parametrize("poison", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["kills", "poison"])
def test_a_thousand_orders_and_three_kills(tmp_path: Path, client: str, strategy: str, *, poison: bool) -> None:
    """Three kills from outside; or two orders side by side that end the process, each until it is a dead letter."""
    topic = f"orders-{time.monotonic_ns()}"
    bad = (403, 404) if poison else ()
    log = tmp_path / "calls"
    with broker_process(tmp_path) as broker, Client(broker.bootstrap) as own:
        own.admin.create_topic(topic, 1)
        own.produce(topic, 0, [b"%d" % number for number in range(COUNT)])
        words = [word for number in bad for word in ("--poison", str(number))]
        for at in () if poison else KILL_AT:
            member = start(broker.bootstrap, topic, client, strategy, log, "--kill-at", str(at))
            assert member.wait(KILL_S) == -9
        member = start(broker.bootstrap, topic, client, strategy, log, *words)
        deaths = 0

        def done() -> bool:
            nonlocal member, deaths
            if member.poll() is not None:
                assert member.returncode == -9
                deaths += 1
                member = start(broker.bootstrap, topic, client, strategy, log, *words)
            return is_done(own, topic, {TopicPartition(topic, 0): COUNT})

        try:
            wait_until(done, 800.0, "all is handled", 0.1)
        finally:
            member.terminate()
            member.wait(60)
        handled = {int(line.split()[1]) for line in log.read_text().splitlines()}
        assert handled == set(range(COUNT))
        dead = Counter(int(letter.value or b"") for letter in records(own, f"dlq.{topic}.{topic}"))
        assert dead == Counter(bad)
        assert {where: row.state for where, row in rows_of(own, topic).items()} == {
            f"{topic}-0-{number}": State.DEAD for number in bad
        }
        print(f"{client}, {strategy}: {deaths} further deaths")
