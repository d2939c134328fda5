import pytest

from tests.kit.harness.handler_calls import HandlerCalls


@pytest.fixture
def broker():
    """A broker with topics `orders` (3 partitions) and `logs` (1)."""
    calls = HandlerCalls()
    calls.logs.create_topic("orders", 3, {})
    calls.logs.create_topic("logs", 1, {"retention.ms": "60000"})
    return calls
