"""A ledger that goes back to a backup while it is followed: its rows are those of the log that there is now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker.backup import back_up
from kafkalite.client import Client
from kafkalite.failures import Ledger
from kafkalite.failures.names import ledger_name
from kafkalite.failures.rows import POLICY_KEY, Row, State, encode_row
from kafkalite.wire.record.columns import Record
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess
from tests.kit.processes.restored import READY_S, put_back

pytestmark = pytest.mark.integration

GROUP = "billing"
TOPIC = ledger_name(GROUP)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "live") as running:
        yield running


def write(client: Client, *texts: str, policy: bytes | None = None) -> None:
    rows = [Record(-1, -1, text.encode(), encode_row(Row(State.DEAD, text))) for text in texts]
    policies = [] if policy is None else [Record(-1, -1, POLICY_KEY.encode(), policy)]
    client.produce(TOPIC, 0, rows + policies)


def orders(first: int, end: int) -> list[str]:
    return [f"orders-0-{number}" for number in range(first, end)]


@pytest.mark.parametrize("count", sample([10, 49, 50, 200], 2), ids=["shorter", "shorter by one", "as long", "longer"])
def test_rows_of_a_ledger_that_was_restored_are_forgotten(live: BrokerProcess, tmp_path: Path, count: int) -> None:
    """50 rows and a policy are lost with the restore, and others are written at their offsets."""
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        client.admin.create_topic(TOPIC, 1, configs={"cleanup.policy": "compact"})
        write(client, *orders(0, 100))
        back_up(str(live.data_dir), str(tmp_path / "saved"))
        write(client, *orders(100, 149), policy=b'{"after": ["fraud"]}')
        ledger = Ledger(client, GROUP)
        ledger.refresh()
        assert [where for where, _ in ledger.records()] == orders(0, 149)
        assert ledger.policy == {"after": ["fraud"]}

        put_back(live, tmp_path / "saved")
        write(client, *orders(1000, 1000 + count))
        ledger.refresh()
        if count == 50:  # nothing has come after what was read; with the next row it shows
            write(client, "orders-0-1050")
            ledger.refresh()
            count += 1
        assert [where for where, _ in ledger.records()] == [*orders(0, 100), *orders(1000, 1000 + count)]
        assert ledger.policy is None


def test_a_ledger_that_was_deleted_and_created_again_is_read_from_its_start(live: BrokerProcess) -> None:
    with Client(live.bootstrap, retry_timeout_s=READY_S) as client:
        client.admin.create_topic(TOPIC, 1)
        write(client, *orders(0, 50))
        ledger = Ledger(client, GROUP)
        ledger.refresh()
        client.admin.delete_topic(TOPIC)
        client.admin.create_topic(TOPIC, 1)
        write(client, *orders(1000, 1010))
        ledger.refresh()
        assert [where for where, _ in ledger.records()] == orders(1000, 1010)
