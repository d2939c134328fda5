"""Clients that push metrics: their subscriptions, the allowed push times, and the errors they get."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.broker.telemetry import clients
from kafkalite.broker.telemetry.clients import NO_ID, Client, ClientMetrics
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.settings.client_metrics import ClientMetricsConfig
from kafkalite.wire.record.compression import Codec, compress
from tests.kit.fakes.metrics_data import counter, gauge, metrics_data

ALICE = Client("alice", "rust", "1.0", "10.0.0.1", 4000)
SIZE_MAX = 10_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        raise AssertionError("intervals do not go by the wall clock")


class Bench:
    """Clients, and subscriptions that can change."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.configs: dict[str, ClientMetricsConfig] = {}
        self.subscribe("all", {"metrics": "*", "interval.ms": "10000"})
        self.clients = ClientMetrics(lambda: self.configs, lambda: SIZE_MAX, self.clock)

    def subscribe(self, name, texts):
        self.configs = {**self.configs, name: ClientMetricsConfig.resolve(texts)}

    def ask(self, instance_id=NO_ID, client=ALICE):
        return self.clients.subscription(instance_id, client)

    def push(self, asked, *metrics, codec=Codec.NONE, client=ALICE, terminating=False, subscription_id=None, data=None):
        if data is None:
            data = compress(codec, metrics_data(*metrics)) if metrics else b""
        wanted = asked.subscription_id if subscription_id is None else subscription_id
        try:
            self.clients.push(asked.instance_id, client, wanted, codec, data, terminating=terminating)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def told(self, name):
        return [row for family in self.clients.families() if family.name == name for row in family.rows]

    def count(self, name):
        return self.told(name)[0][1]


@pytest.fixture
def bench():
    return Bench()


def refused(call, *arguments):
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


def test_new_client_is_given_an_id_and_the_union_of_what_means_it(bench):
    bench.configs = {}
    bench.subscribe("a", {"metrics": "x.,y.", "interval.ms": "7000"})
    bench.subscribe("b", {"metrics": "z.,y.", "interval.ms": "5000", "match": "client_id=al.*,client_source_port=4..."})
    bench.subscribe("c", {"metrics": "*", "interval.ms": "100", "match": "client_software_name=python"})
    asked = bench.ask()
    assert asked.instance_id != NO_ID
    assert (asked.metrics, asked.interval_ms) == (("x.", "y.", "z."), 5000)
    python = bench.ask(client=ALICE._replace(software_name="python"))
    assert (python.metrics, python.interval_ms) == (("*",), 100)
    assert python.instance_id != asked.instance_id


def test_without_a_subscription_no_metrics_are_requested(bench):
    bench.configs = {}
    assert bench.ask()[2:] == (300_000, ())


@pytest.mark.parametrize("codec", list(Codec))
def test_counters_are_added_up_and_gauges_replaced(bench, codec):
    asked = bench.ask()
    assert (
        bench.push(asked, counter("c", 2, topic="t"), counter("s", 5, delta=False), gauge("g", 1.5), codec=codec) == 0
    )
    bench.clock.now += 10
    assert (
        bench.push(asked, counter("c", 3, topic="t"), counter("s", 6, delta=False), gauge("g", 0.5), codec=codec) == 0
    )
    (labels, total), (_, cumulative) = bench.told("kafkalite_client_counter")
    assert (total, cumulative) == (5.0, 6.0)
    for part in ('metric="c"', 'client_id="alice"', 'software="rust 1.0"', 'attributes="topic=t"'):
        assert part in labels
    assert [value for _, value in bench.told("kafkalite_client_metric")] == [0.5]


def test_asking_too_often_is_throttled(bench):
    asked = bench.ask()
    assert refused(bench.ask, asked.instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.clock.now += 10
    assert bench.ask(asked.instance_id) == asked
    assert bench.count("kafka_server_client_metrics_throttle") == 1


def test_pushing_is_allowed_once_after_asking_then_once_an_interval(bench):
    asked = bench.ask()
    bench.clock.now += 1
    assert bench.push(asked, gauge("g", 1.0)) == 0
    bench.clock.now += 9
    assert bench.push(asked, gauge("g", 2.0)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.clock.now += 1
    assert bench.push(asked, gauge("g", 3.0)) == 0
    assert [value for _, value in bench.told("kafkalite_client_metric")] == [3.0]


def test_last_push_is_taken_at_any_time_and_nothing_after_it(bench):
    asked = bench.ask()
    assert bench.push(asked, gauge("g", 1.0)) == 0
    assert bench.push(asked, gauge("g", 2.0), terminating=True) == 0
    bench.clock.now += 10
    assert bench.push(asked, gauge("g", 3.0)) == ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_is_reported_and_may_be_fetched_at_once(bench):
    asked = bench.ask()
    bench.subscribe("all", {"metrics": "x.", "interval.ms": "20000"})
    assert bench.push(asked, gauge("g", 1.0)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = bench.ask(asked.instance_id)
    assert (again.metrics, again.interval_ms) == (("x.",), 20_000)
    bench.clock.now += 20
    assert bench.push(again, gauge("g", 1.0)) == 0
    assert bench.count("kafka_server_client_metrics_unknown_subscription_request") == 1


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, id="subscription"),
        pytest.param({"codec": 5, "data": b"x"}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec"),
        pytest.param({"codec": -1, "data": b"x"}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="negative-codec"),
        pytest.param({"data": bytes(SIZE_MAX + 1)}, ErrorCode.TELEMETRY_TOO_LARGE, id="size"),
        pytest.param({"data": b"\x0b"}, ErrorCode.INVALID_RECORD, id="not-metrics"),
        pytest.param({"codec": Codec.GZIP, "data": b"\x0b"}, ErrorCode.INVALID_RECORD, id="not-gzip"),
        pytest.param({}, ErrorCode.NONE, id="nothing-to-tell"),
    ],
)
def test_push_that_is_refused(bench, how, code):
    assert bench.push(bench.ask(), **how) == code
    assert bench.told("kafkalite_client_metric") == []


def test_unknown_client_ids(bench):
    asked = bench.ask()
    for nobody in (NO_ID, bytes(15) + b"\x01"):
        assert bench.push(asked._replace(instance_id=nobody), gauge("g", 1.0)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bomb_in_any_codec_is_refused(bench, codec, monkeypatch):
    monkeypatch.setattr(clients, "UNPACKED_SIZE_MAX", 20_000)
    bomb = compress(codec, bytes(100_000))
    assert len(bomb) <= SIZE_MAX
    assert bench.push(bench.ask(), codec=codec, data=bomb) == ErrorCode.TELEMETRY_TOO_LARGE
    assert bench.count("kafka_server_client_metrics_plugin_error") == 1


def test_a_client_on_a_new_connection_may_push_after_its_last_push(bench):
    asked = bench.ask()
    assert bench.push(asked, counter("c", 1), terminating=True) == 0
    other = ALICE._replace(port=4001)
    assert bench.ask(asked.instance_id, other).instance_id == asked.instance_id
    assert bench.push(asked, counter("c", 1), client=other) == ErrorCode.NONE
    assert [value for _, value in bench.told("kafkalite_client_counter")] == [2.0]


def test_silent_clients_are_forgotten(bench):
    asked = bench.ask()
    assert bench.push(asked, gauge("g", 1.0)) == 0
    bench.clock.now += 59
    assert bench.count("kafka_server_client_metrics_instance_count") == 1
    bench.clock.now += 1
    assert bench.count("kafka_server_client_metrics_instance_count") == 0
    assert bench.told("kafkalite_client_metric") == []


def test_more_clients_than_are_kept(bench, monkeypatch):
    monkeypatch.setattr(clients, "INSTANCES_MAX", 3)
    first, *_ = [bench.ask() for _ in range(4)]
    assert bench.count("kafka_server_client_metrics_instance_count") == 3
    assert bench.ask(first.instance_id) == first  # not known any more, so not throttled


def test_another_clients_instance_and_numbers_are_kept(bench, monkeypatch):
    monkeypatch.setattr(clients, "INSTANCES_MAX", 200)
    monkeypatch.setattr(clients, "SERIES_MAX", 200)
    large = ALICE._replace(address="10.0.0.2")
    before = bench.ask()
    assert bench.push(before, gauge("before", 1.0)) == 0
    for number in range(400):
        assert bench.push(bench.ask(client=large), gauge(f"g{number}", 1.0), client=large) == 0
    assert bench.count("kafka_server_client_metrics_instance_count") == 180
    later = bench.ask()
    assert bench.push(later, gauge("later", 1.0)) == 0
    names = {labels.split('"')[1] for labels, _ in bench.told("kafkalite_client_metric")}
    assert {"before", "later"} <= names, "nothing was pushed out"
    bench.clock.now += 60
    assert bench.count("kafka_server_client_metrics_instance_count") == 0
    assert len(bench.clients._shares) == len(bench.clients._series_shares) == len(bench.clients._ids_of) == 0


def test_a_client_for_which_there_is_no_room_is_throttled(bench, monkeypatch):
    monkeypatch.setattr(clients, "INSTANCES_MAX", 3)
    asked = [bench.ask() for _ in range(3)]
    other = ALICE._replace(address="10.0.0.2")
    assert refused(bench.ask, NO_ID, other) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert bench.push(asked[0], gauge("g", 1.0)) == 0


def test_numbers_beyond_what_is_kept_are_counted(bench, monkeypatch):
    monkeypatch.setattr(clients, "SERIES_PER_INSTANCE_MAX", 3)
    monkeypatch.setattr(clients, "SERIES_MAX", 4)
    for count in (3, 1):
        assert bench.push(bench.ask(), *[gauge(f"g{number}", 1.0) for number in range(5)]) == 0
        assert bench.count("kafkalite_client_dropped_metrics") == (2 if count == 3 else 6)
    assert len(bench.told("kafkalite_client_metric")) == 4
    bench.clock.now += 60
    assert bench.push(bench.ask(), gauge("g", 1.0)) == 0
    assert len(bench.told("kafkalite_client_metric")) == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\x1b[2J"])
def test_names_that_no_label_holds_as_they_are(bench, name):
    assert bench.push(bench.ask(), gauge(name, 1.0), gauge("good", 1.0, key=name)) == 0
    kept = [labels for labels, _ in bench.told("kafkalite_client_metric")]
    assert len(kept) == (1 if name == "" else 0)


@given(st.binary(max_size=200), st.sampled_from(list(Codec)), st.booleans())
def test_any_bytes_are_taken_or_refused(data, codec, packed):
    bench = Bench()
    code = bench.push(bench.ask(), codec=codec, data=compress(codec, data) if packed else data)
    assert code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE)
    assert len(list(bench.clients.families())) == 8


def test_gzip_of_others_is_read(bench):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(metrics_data(gauge("g", 1.0))) + packer.flush()
    assert bench.push(bench.ask(), codec=Codec.GZIP, data=data) == 0
