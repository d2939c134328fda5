"""The schema registry on Apache Kafka: two of them give each id once there too, and it is there after a restart."""

import pytest

from kafkalite.schema_registry.server import RegistryServer
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.schema_registry import call

pytestmark = [pytest.mark.compat, pytest.mark.integration, pytest.mark.slow]


def test_two_registries_take_turns(apache_kafka: ApacheKafka) -> None:
    with (
        RegistryServer(apache_kafka.bootstrap, port=0, timeout_s=60) as first,
        RegistryServer(apache_kafka.bootstrap, port=0, timeout_s=60) as second,
    ):
        for number in range(10):
            address = (first, second)[number % 2].address
            body = {"schema": f'{{"type":"fixed","name":"F{number}","size":1}}'}
            assert call(address, "POST", f"/subjects/s{number}/versions", body)[:2] == (200, {"id": number + 1})
            assert call((first, second)[1 - number % 2].address, "GET", f"/schemas/ids/{number + 1}")[:2] == (200, body)
    with RegistryServer(apache_kafka.bootstrap, port=0, timeout_s=60) as again:
        assert call(again.address, "GET", "/subjects")[1] == [f"s{number}" for number in range(10)]
