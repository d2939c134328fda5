"""Commands that read committed show no aborted records, and each prints its isolation level."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.audit import AuditedProducer
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.failures.rows import Row, State, encode_row
from kafkalite.wire.record.columns import Record
from tests.kit.harness.command_output import own_lines
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[2]
LETTERS, LEDGER = "dlq.billing.orders", "kafkalite.failures.billing"
STAMP = 1_795_310_400_000
READY_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Records, letters, rows of a ledger and counted messages, each once committed and once given up."""
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        with Client(running.bootstrap_servers) as client:
            for topic in ("orders", LETTERS, LEDGER):
                client.admin.create_topic(topic, 1)
            with client.producer(transactional_id="t") as producer:
                producer.init_transactions()
                for number, value in enumerate((b"kept", b"given up", b"kept too")):
                    producer.begin_transaction()
                    producer.send("orders", 0, [Record(-1, STAMP, b"id", value)])
                    producer.send(LETTERS, 0, [Record(-1, STAMP, b"id", value, headers(number))])
                    row = Row(State.DEAD, reason=value.decode(), last=STAMP)
                    producer.send(LEDGER, 0, [Record(-1, STAMP, b"orders-0-%d" % number, encode_row(row))])
                    producer.abort_transaction() if value == b"given up" else producer.commit_transaction()
            client.admin.create_topic("counted", 1)
            with AuditedProducer(client, server="web1", transactional_id="a", report_interval_s=0) as counted:
                for number in range(3):
                    counted.begin_transaction()
                    counted.send("counted", 0, [Record(-1, STAMP, None, b"x")])
                    counted.abort_transaction() if number == 1 else counted.commit_transaction()

            def settled() -> bool:
                keys = [(topic, part) for topic in client.topics() for part in client.partitions(topic)]
                return all(client.end_offset(*key, isolation=READ_COMMITTED) == client.end_offset(*key) for key in keys)

            wait_until(settled, READY_S, "every transaction is over")
        yield running


def headers(number: int) -> tuple[tuple[str, bytes], ...]:
    named = {"dlq.topic": "orders", "dlq.partition": "0", "dlq.offset": f"{number}", "dlq.group": "billing"}
    return tuple((name, text.encode()) for name, text in named.items())


COMMANDS = {
    "query": ["query", 'select value from "orders"'],
    "track": ["track", "id", "--topics", "orders", "-v", "--json"],
    "consume": ["consume", "-t", "orders", "-o", "beginning", "-e", "--isolation", "read_committed"],
    "letters list": ["letters", "list", "billing"],
    "letters count": ["letters", "count", "billing"],
    "failures status": ["failures", "status", "billing"],
    "failures ledger": ["failures", "ledger", "billing"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_shows_what_is_committed_and_says_so(
    broker: Broker, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-b", broker.bootstrap_servers]) == 0
    out, err = capfd.readouterr()
    assert "given up" not in out
    assert '"isolation_level":"read_committed"' in out or "isolation level read_committed" in own_lines(err)


def test_a_mirror_copies_what_is_committed_and_says_so(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as target:
        flags = ["--from", broker.bootstrap_servers, "--to", target.bootstrap_servers, "--topics", "orders"]
        assert main(["mirror", *flags, "--name", "m", "-e", "-q"]) == 0
        with Client(target.bootstrap_servers) as client:
            values = [value for chunk in client.read("orders", 0) for value in chunk.columns.values]
    assert values == [b"kept", b"kept too"]
    assert own_lines(capfd.readouterr().err).endswith("kafkalite: isolation level read_committed\n")


def test_an_audit_says_so(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--live", broker.bootstrap_servers, "-q", "--grace", "0", "--topics", "counted"]) == 0
    assert own_lines(capfd.readouterr().err).endswith("kafkalite: isolation level read_committed\n")
    command = [sys.executable, "-m", "kafkalite", "audit", "--live", broker.bootstrap_servers, "--follow"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "kafkalite: isolation level read_committed\n"
        finally:
            process.terminate()
        assert process.wait(READY_S) == 0
