import pytest

from kafkalite.broker.log import segment_removal
from tests.kit.harness.handler_calls import HandlerCalls, LogInMemory


@pytest.fixture
def broker():
    """A broker with topics `orders` (3 partitions) and `logs` (1)."""
    calls = HandlerCalls()
    calls.logs.create_topic("orders", 3, {})
    calls.logs.create_topic("logs", 1, {"retention.ms": "60000"})
    return calls


@pytest.fixture(autouse=True)
def records_in_memory():
    """A log in memory has no segments: it deletes its records itself."""
    of_segments = segment_removal.delete_records

    def delete_records(log, offset):
        return log.delete_records(offset) if isinstance(log, LogInMemory) else of_segments(log, offset)

    with pytest.MonkeyPatch.context() as patch:  # its own: the tests' is undone before their fixtures end
        patch.setattr(segment_removal, "delete_records", delete_records)
        yield
