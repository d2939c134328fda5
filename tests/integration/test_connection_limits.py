"""How many connections there may be, and may come in a second: on all listeners, on one, from one address."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite import Broker
from kafkalite.errors import ConfigError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kit.harness.quotas import Client, set_quotas
from tests.kit.harness.wire import Closed

if TYPE_CHECKING:
    from contextlib import ExitStack

pytestmark = pytest.mark.integration

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT",
}


def is_served(client: Client) -> bool:
    try:
        return client.ask(api.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
    except (Closed, ConnectionError):
        return False


def served(stack: ExitStack, port: int, count: int) -> list[Client]:
    """Open `count` connections and return those that are served; all stay open."""
    opened = [stack.enter_context(Client(port)) for _ in range(count)]
    return [client for client in opened if is_served(client)]


def change(client: Client, key: str, value: str) -> int:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    answer = client.ask(api.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    return int(answer.responses[0].error_code)


def test_a_full_listener_does_not_lock_the_others(tmp_path: Any) -> None:
    settings = {**TWO, "log.dirs": str(tmp_path), "listener.name.plaintext.max.connections": "3"}
    with Broker(settings) as broker, contextlib.ExitStack() as stack:
        plain, inside = (broker.endpoints[name].port for name in ("PLAINTEXT", "INSIDE"))
        first = served(stack, plain, 5)
        assert len(first) == 3
        admins = served(stack, inside, 5)
        assert len(admins) == 5
        first[0].socket.close()
        assert change(admins[0], "listener.name.plaintext.max.connections", "5") == 0
        assert change(admins[0], "listener.name.inside.max.connections", "5") == 0
        assert served(stack, inside, 2) == []
    with Broker(settings) as broker, contextlib.ExitStack() as stack:
        assert len(served(stack, broker.endpoints["PLAINTEXT"].port, 8)) == 5, "what was changed holds after a restart"


@pytest.mark.parametrize("key", ["max.connections", "max.connection.creation.rate"])
@pytest.mark.parametrize("value", ["many", "-1", "3000000000"])
def test_a_limit_that_is_none_is_refused(key: str, value: str, tmp_path: Any) -> None:
    named = f"listener.name.plaintext.{key}"
    for full in (key, named):
        with pytest.raises(ConfigError, match=key):
            Broker({"log.dirs": str(tmp_path), full: value})
    with Broker() as broker, Client(broker.port) as client:
        assert change(client, named, value) == 42 or change(client, named, value) == 40


def test_connections_above_the_rate_wait_and_are_served_in_the_end() -> None:
    with Broker({"max.connection.creation.rate": "20"}) as broker, contextlib.ExitStack() as stack:
        assert len(served(stack, broker.port, 30)) == 30


def test_a_listener_that_waits_does_not_hold_up_the_others() -> None:
    settings = {**TWO, "listener.name.plaintext.max.connection.creation.rate": "1"}
    with Broker(settings) as broker, contextlib.ExitStack() as stack:
        plain, inside = (broker.endpoints[name].port for name in ("PLAINTEXT", "INSIDE"))
        waiting = [stack.enter_context(Client(plain)) for _ in range(60)]
        for client in waiting:
            client.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        others = served(stack, inside, 50)
        assert len(others) == 50
        assert waiting[-1].hears_nothing(), "a second each: this one waits for a minute"
        assert change(others[0], "listener.name.plaintext.max.connection.creation.rate", "1000") == 0
        for client in waiting:
            assert client.receive_message(api.API_VERSIONS, 0).error_code == 0


def test_an_address_over_its_quota_is_not_read_and_closed() -> None:
    with Broker() as broker, contextlib.ExitStack() as stack:
        set_quotas(broker.port, {"ip": "127.0.0.1"}, connection_creation_rate=3.0)
        assert len(served(stack, broker.port, 3)) == 3
        over = stack.enter_context(Client(broker.port))
        over.send_message(api.API_VERSIONS, 0, ApiVersionsRequest())
        with pytest.raises((Closed, ConnectionError)):
            over.receive_exactly(1)
        assert broker.connection_count == 3


def test_an_address_is_the_one_that_its_name_stands_for_after_a_restart_too(tmp_path: Any) -> None:
    with Broker(log_dirs=str(tmp_path)) as broker:
        set_quotas(broker.port, {"ip": "localhost"}, connection_creation_rate=2.0)
        set_quotas(broker.port, {"ip": None}, connection_creation_rate=2_000_000.0)
    with Broker(log_dirs=str(tmp_path)) as broker, contextlib.ExitStack() as stack:
        assert len(served(stack, broker.port, 4)) == 2
    with Broker(log_dirs=str(tmp_path)) as broker, contextlib.ExitStack() as stack:
        elsewhere = []
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.bind(("127.0.0.2", 0))
            client.connect(("127.0.0.1", broker.port))
            client.settimeout(20)
            client.sendall(bytes.fromhex("0000000a00120000000000010000"))
            elsewhere.append(client.recv(4))
        assert all(len(size) == 4 for size in elsewhere), "another address has the default"
