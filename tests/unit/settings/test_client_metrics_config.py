"""Which clients a subscription to their metrics means."""

import pytest

from kafkalite.settings.client_metrics import ClientMetricsConfig

CLIENT = {
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "client_id": "orders-7",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.1.0",
    "client_source_address": "127.0.0.1",
    "client_source_port": "40000",
}


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        pytest.param("", True, id="nothing-said"),
        pytest.param("client_id=orders-.*", True, id="pattern"),
        pytest.param("client_id=orders", False, id="whole-text"),
        pytest.param("client_id=orders-.* , client_software_version = 4[.]1.*", True, id="both"),
        pytest.param("client_id=orders-.*,client_software_version=3.*", False, id="one-of-two"),
        pytest.param("client_id=orders-7=", True, id="nothing-behind-the-last"),
        pytest.param("client_id=x,client_id=orders-7", True, id="the-last-of-a-name-counts"),
        pytest.param("client_source_address=127.*,client_source_port=4....", True, id="where-from"),
        pytest.param("client_instance_id=A+Q", True, id="instance"),
    ],
)
def test_pattern_of_clients(match, meant):
    assert ClientMetricsConfig.resolve({"match": match}).matches(CLIENT) is meant


def test_what_a_client_does_not_tell_matches_nothing():
    config = ClientMetricsConfig.resolve({"match": "client_software_name=.*"})
    assert config.matches(CLIENT)
    assert not config.matches({"client_id": "x"})
