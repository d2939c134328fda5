"""Metrics of limits on clients: quotas, connections, authentication, permissions. Other clients cost nothing."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import pytest

from kafkalite import Broker
from kafkalite._native.serve.quota import QuotaControl
from kafkalite.base.metric_families import LABELLED_MAX, OTHERS
from kafkalite.base.quota_entities import PRODUCER_BYTE_RATE
from kafkalite.broker.handlers.sign_in import AGAIN_S_MIN
from kafkalite.broker.metrics.limits import Limits, Recent
from kafkalite.broker.metrics.parts import Parts
from kafkalite.errors import ErrorCode
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import wire
from tests.kit.harness.quotas import SETTER, Client, records_in, set_quotas
from tests.kit.harness.sasl_broker import PASSWORD, RawClient, SaslBroker, plain_token
from tests.kit.harness.scrape import Scrape
from tests.kit.harness.wire import Closed
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

HERE = "http://127.0.0.1:0"
SIGN_INS = "kafka_server_socket_server_metrics"
THROTTLED = "kafka_network_requestmetrics_throttletimems"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics_listeners=HERE, num_partitions=1) as running:
        running.create_topic("t")
        yield running


def scrape(broker: Broker) -> Scrape:
    return Scrape.of(broker.metrics_urls[0])


def test_a_client_over_its_quota_is_counted_by_user_client_and_resource(broker: Broker) -> None:
    set_quotas(broker.port, {"client-id": "p"}, producer_byte_rate=1.0, consumer_byte_rate=1e9)
    with Client(broker.port, "p") as client:
        told_ms = client.put(1000).throttle_time_ms
    with Client(broker.port, "p2") as client:
        assert client.put(1000).throttle_time_ms == 0
    with Client(broker.port, "p") as client:
        assert records_in(client.get()) > 1000
    wait_until(lambda: scrape(broker)(f"{THROTTLED}_count", request="Produce") == 2, 60, "both to be counted")
    seen = scrape(broker)
    produce = {"user": "", "clientid": "p", "resource": "Produce"}
    fetch = {**produce, "resource": "Fetch"}
    assert seen("kafka_server_quota_byte_rate", **produce) > 0
    assert seen("kafka_server_quota_byte_rate", **fetch) > 0
    assert seen("kafka_server_quota_throttle_time", **produce) == told_ms
    assert seen("kafka_server_quota_throttle_time", **fetch) == 0
    assert len(seen.labels_of("kafka_server_quota_byte_rate")) == 2, "nobody else has a quota"
    assert seen("kafkalite_quota_throttled_total", resource="Produce") == 1
    assert seen("kafkalite_quota_throttled_seconds_total", resource="Produce") == told_ms / 1000
    assert seen("kafkalite_quota_throttled_total", resource="Fetch") == 0
    assert seen(f"{THROTTLED}_sum", request="Produce") == told_ms
    assert seen(f"{THROTTLED}", request="Produce", quantile=0.5) <= 1, "the other one waited for nothing"
    assert told_ms / 2 <= seen(f"{THROTTLED}", request="Produce", quantile=0.999) <= 2 * told_ms


def test_a_fetch_that_finds_nothing_left_is_told_to_wait_and_counted(broker: Broker) -> None:
    with Client(broker.port, SETTER) as client:
        client.put(5000)
    set_quotas(broker.port, {"user": None}, consumer_byte_rate=1.0)
    with Client(broker.port, "c") as client:
        assert records_in(client.get()) > 5000
        told_ms = client.get().throttle_time_ms
    assert told_ms > 0
    wait_until(lambda: scrape(broker)(f"{THROTTLED}_count", request="Fetch") == 2, 60, "both to be counted")
    seen = scrape(broker)
    assert seen(f"{THROTTLED}_sum", request="Fetch") == told_ms
    assert seen(f"{THROTTLED}_sum", request="FetchConsumer") == told_ms
    assert seen("kafka_server_quota_throttle_time", user="ANONYMOUS", clientid="", resource="Fetch") == told_ms


def test_a_client_that_creates_too_many_partitions_is_throttled_and_counted(broker: Broker) -> None:
    set_quotas(broker.port, {"user": None}, controller_mutation_rate=1e-3)
    with wire.Connection(broker.port) as client:
        assert client.create_topic("many", 20) == 0
    place = {"user": "ANONYMOUS", "clientid": "", "resource": "ControllerMutation"}
    name = f"{THROTTLED}_sum"
    wait_until(lambda: scrape(broker)(name, request="CreateTopics") > 0, 60, "the wait to be counted")
    seen = scrape(broker)
    assert seen("kafka_server_quota_mutation_rate", **place) > 0
    assert seen("kafka_server_quota_throttle_time", **place) == seen(name, request="CreateTopics")
    assert seen(f"{THROTTLED}_count", request="CreateTopics") == 1


def test_of_many_owners_a_hundred_are_told_and_the_others_together() -> None:
    clock, control = FakeClock(), owners(LABELLED_MAX + 20)
    parts = Parts(config=Broker().config, clock=clock, errors=None)  # type: ignore[arg-type]
    limits = Limits(parts)
    clock.advance(2.0)
    families = {family.name: list(family.rows) for family in limits._quotas(control)}
    rows = dict(families["kafka_server_quota_byte_rate"])
    assert len(rows) == LABELLED_MAX + 1
    others = rows[f'{{user="{OTHERS}",clientid="{OTHERS}",resource="Produce"}}']
    assert math.isclose(others, sum(range(20)) / 2)
    assert rows['{user="u119",clientid="",resource="Produce"}'] == 119 / 2


def owners(count: int) -> QuotaControl:
    """User i has done i."""
    control = QuotaControl(
        lambda user, _client: ((1e6, (PRODUCER_BYTE_RATE, user, None)), None, None, None),
        window_s=1.0, samples=11, mutation_window_s=1.0, mutation_samples=11,
    )  # fmt: skip
    for i in range(count):
        control.quota_of(f"User:u{i}", "c")
        control.meters[PRODUCER_BYTE_RATE, f"u{i}", None].charge(float(i), 1.0)
    return control


def test_a_rate_is_of_the_last_window_and_no_scrape_shortens_it() -> None:
    control = owners(2)
    owner = (PRODUCER_BYTE_RATE, "u1", None)
    meter = control.meters[owner]
    recent = Recent(100.0, 10.0)
    assert recent.look(104.0, control)[0] == 4.0
    assert recent.look(110.0, control)[1][owner].done == 1.0
    meter.charge(50.0, 111.0)
    for now in (112.0, 113.0, 119.0):
        assert recent.look(now, control)[0] == now - 100.0
    elapsed_s, found = recent.look(121.0, control)
    assert (elapsed_s, found[owner].done) == (11.0, 50.0)
    elapsed_s, found = recent.look(200.0, control)
    assert (elapsed_s, found[owner].done) == (79.0, 0.0)


def test_what_a_forgotten_meter_has_counted_stays_in_the_sums() -> None:
    """There are 65,536 meters at most: those at rest go, the sums do not sink."""
    control = QuotaControl(
        lambda user, _client: ((1e12, (PRODUCER_BYTE_RATE, user, None)), None, None, None),
        window_s=1.0, samples=2, mutation_window_s=1.0, mutation_samples=2,
    )  # fmt: skip
    control.quota_of("User:first", "c")
    first = control.meters[PRODUCER_BYTE_RATE, "first", None]
    first.charge(7.0, 1.0)
    first.held_up(1500)
    for i in range(65_536):
        control.quota_of(f"User:u{i}", "c")
    assert (PRODUCER_BYTE_RATE, "first", None) not in control.meters
    assert control.totals()[PRODUCER_BYTE_RATE] == (7.0, 1500.0, 1)


def test_connections_that_are_refused_are_counted_by_the_limit() -> None:
    refused = "kafkalite_connections_refused_total"
    settings = {"metrics.listeners": HERE, "max.connections": "3", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    with Broker(settings) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(wire.Connection(broker.port)) for _ in range(4)]
        wait_until(lambda: scrape(broker)(refused, limit="max.connections.per.ip") == 2, 60, "both to be refused")
        assert len(clients) == 4
        assert scrape(broker)(refused, limit="max.connections") == 0


def test_connections_of_an_address_over_its_quota_are_counted(broker: Broker) -> None:
    set_quotas(broker.port, {"ip": "127.0.0.1"}, connection_creation_rate=2.0)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(broker.port)) for _ in range(4)]
        refused = "kafkalite_connections_refused_total"
        wait_until(lambda: scrape(broker)(refused, limit="connection_creation_rate") > 0, 60, "one to be refused")
        with pytest.raises((Closed, ConnectionError)):
            clients[-1].receive_exactly(1)
        wait_until(lambda: scrape(broker)("kafkalite_connections_held") == 0, 60, "it to be closed")


def test_a_paused_listener_is_reported() -> None:
    with (
        Broker({"metrics.listeners": HERE, "max.connection.creation.rate": "2"}) as broker,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(4):
            stack.enter_context(wire.Connection(broker.port))
        delays = "kafkalite_listener_delays_total"
        place = scrape(broker).labels_of(delays)[0]
        wait_until(lambda: scrape(broker)(delays, **place) > 0, 60, "the listener to wait")
        assert scrape(broker)("kafkalite_listener_delay_seconds_total", **place) > 0


def test_what_is_not_allowed_is_counted_by_operation_and_resource() -> None:
    with Broker({"metrics.listeners": HERE, "authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        with wire.Connection(broker.port) as client:
            client.create_topic("a")
            client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")]))
        denied = scrape(broker)
        name = "kafkalite_authorisations_denied_total"
        assert denied(name, operation="CREATE", resource="TOPIC") == 1
        assert denied(name, operation="WRITE", resource="TOPIC") == 1
        assert len(denied.labels_of(name)) == 2, "what is asked first, and more may follow, is no denial"


def test_sign_ins_are_counted_by_mechanism_and_outcome(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, metrics_listeners=HERE) as sasl:
        with sasl.connect() as client:
            assert client.plain().error_code == 0
        with sasl.connect() as client:
            assert client.plain(password="wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with sasl.connect() as client:
            assert client.scram()[0].error_code == 0
        with sasl.connect() as client:
            assert client.handshake("GSSAPI").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with sasl.connect() as client:
            client.send(b"\x7f\xff\xff\xff")
            assert client.is_closed()
        wait_until(lambda: scrape(sasl.broker)(f"{SIGN_INS}_failed_authentication_total") == 3, 60, "all to have ended")
        seen = scrape(sasl.broker)
        name = "kafkalite_sign_ins_total"
        for mechanism, outcome in (
            ("PLAIN", "success"),
            ("PLAIN", "credentials"),
            ("SCRAM-SHA-256", "success"),
            ("", "mechanism"),
            ("", "protocol"),
        ):
            assert seen(name, listener="SASL", mechanism=mechanism, outcome=outcome, again="false") == 1
        assert seen(f"{SIGN_INS}_successful_authentication_total") == 2
        assert seen(f"{SIGN_INS}_successful_reauthentication_total") == 0


def test_signing_in_again_and_sessions_that_are_over_are_counted(tmp_path: Path) -> None:
    clock = FakeClock()
    with SaslBroker(tmp_path, clock, metrics_listeners=HERE, connections_max_reauth_ms="600000") as sasl:
        with sasl.connect() as client, sasl.connect() as other, sasl.connect() as third:
            for one in (client, other, third):
                assert one.plain().error_code == 0
            clock.advance(AGAIN_S_MIN)
            assert client.plain().error_code == 0
            assert other.handshake("PLAIN").error_code == 0
            assert other.authenticate(plain_token("bob", PASSWORD)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        seen = scrape(sasl.broker)
        assert seen(f"{SIGN_INS}_successful_authentication_total") == 3
        assert seen(f"{SIGN_INS}_successful_reauthentication_total") == 1
        assert seen(f"{SIGN_INS}_failed_reauthentication_total") == 1
        assert seen(f"{SIGN_INS}_failed_authentication_total") == 0
        assert seen("kafkalite_sign_ins_total", listener="SASL", mechanism="PLAIN", outcome="identity", again="true")


def ask_for_ever(client: RawClient) -> None:
    while True:
        client.metadata()


def test_a_client_that_continues_after_its_session_is_counted(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, metrics_listeners=HERE, connections_max_reauth_ms="1") as sasl:
        with sasl.connect() as client:
            assert client.plain().error_code == 0
            with pytest.raises(ConnectionError):
                ask_for_ever(client)
        seen = scrape(sasl.broker)
        assert seen(f"{SIGN_INS}_expired_connections_killed_count") == 1
