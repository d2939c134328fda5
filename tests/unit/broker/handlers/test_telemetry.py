"""GetTelemetrySubscriptions and PushTelemetry, as clients hear them."""

import pytest

from kafkalite.broker.telemetry.clients import ClientMetrics
from kafkalite.errors import ErrorCode
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkalite.wire.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.kit.fakes.metrics_data import gauge, metrics_data


@pytest.fixture
def asked(broker):
    """Serve metrics on the broker, and return the subscription it gives a client."""
    configs = {"all": ClientMetricsConfig.resolve({"metrics": "*", "interval.ms": "1000"})}
    broker.services.client_metrics = ClientMetrics(lambda: configs, lambda: 1000, broker.clock)
    return broker.call(api.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest())


def push(broker, asked, data):
    request = PushTelemetryRequest(
        client_instance_id=asked.client_instance_id, subscription_id=asked.subscription_id, metrics=data
    )
    return broker.call(api.PUSH_TELEMETRY, 0, request).error_code


def test_client_is_asked_and_pushes(broker, asked):
    assert (asked.error_code, asked.push_interval_ms, asked.telemetry_max_bytes) == (0, 1000, 1000)
    assert (asked.requested_metrics, asked.accepted_compression_types) == (["*"], [4, 3, 1, 2])
    assert asked.delta_temporality
    assert not broker.blocked
    assert push(broker, asked, metrics_data(gauge("g", 1.0))) == 0
    assert broker.blocked
    assert push(broker, asked, b"") == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    again = GetTelemetrySubscriptionsRequest(client_instance_id=asked.client_instance_id)
    assert broker.call(api.GET_TELEMETRY_SUBSCRIPTIONS, 0, again).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_without_metrics_no_client_pushes(broker):
    answer = broker.call(api.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest())
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert broker.call(api.PUSH_TELEMETRY, 0, PushTelemetryRequest()).error_code == ErrorCode.UNSUPPORTED_VERSION
