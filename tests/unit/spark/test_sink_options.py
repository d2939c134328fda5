"""The sink's options: names, values, columns, refusals."""

import pytest

from kafkalite.record.compression import Codec
from kafkalite.spark.options import GivenOptions, OptionError
from kafkalite.spark.sink import options as sink_options
from kafkalite.spark.sink.options import HEADERS, KNOWN, REFUSED, SinkOptions

BASE = {"kafka.bootstrap.servers": "one:1", "topic": "t"}
VALUE = {"value": "binary"}


def parse(columns: dict[str, str] | None = None, *, streaming: bool = True, **options: str) -> SinkOptions:
    return SinkOptions.parse({**BASE, **options}, VALUE if columns is None else columns, streaming=streaming)


def test_defaults_are_a_safe_producers() -> None:
    options = parse()
    assert (options.bootstrap_servers, options.topic) == ("one:1", "t")
    assert dict(options.producer) == {"acks": -1, "codec": Codec.NONE, "idempotent": True}
    assert options.client == ()


def test_settings_reach_the_producer() -> None:
    options = parse(
        **{
            "KAFKA.ACKS": "1",
            "kafka.compression.type": "lz4",
            "kafka.batch.size": "1000",
            "kafka.max.in.flight.requests.per.connection": "1",
            "kafka.delivery.timeout.ms": "1500",
            "kafka.request.timeout.ms": "250",
            "kafka.client.id": "me",
        }
    )
    assert dict(options.producer) == {
        "acks": 1,
        "codec": Codec.LZ4,
        "idempotent": False,
        "batch_size": 1000,
        "in_flight_max": 1,
        "delivery_timeout_s": 1.5,
    }
    assert dict(options.client) == {"client_id": "me", "request_timeout_s": 0.25}
    assert hash(options), "writers are kept by their options"


def test_exactly_once_is_asked_for() -> None:
    assert not parse().exactly_once
    options = parse(delivery="Exactly-Once", **{"kafka.transaction.timeout.ms": "1500", "failOnMarkerLoss": "false"})
    assert (options.exactly_once, options.transaction_timeout_s, options.fail_on_marker_loss) == (True, 1.5, False)
    with pytest.raises(OptionError, match="option delivery: exactly-once is for streaming queries"):
        parse(streaming=False, delivery="exactly-once")
    for weak in ({"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}):
        with pytest.raises(OptionError, match=r"option delivery: exactly-once needs kafka.acks=all"):
            parse(delivery="exactly-once", **weak)


@pytest.mark.parametrize("name", ["includeHeaders", "kafka.linger.ms", "checkpointLocation", "queryName"])
def test_some_change_nothing(name: str) -> None:
    assert parse(**{name: "true"}) == parse()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be set"):
        parse(**{name.upper(): "x"})


def test_every_known_option_is_asked_for() -> None:
    values = dict.fromkeys(KNOWN, "1") | {
        "kafka.bootstrap.servers": "one:1",
        "topic": "t",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.compression.type": "none",
        "delivery": "exactly-once",
        "failOnMarkerLoss": "true",
    }
    asked = set()

    class Watched(dict[str, str]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            asked.add(name)
            return super().get(name, default)  # type: ignore[arg-type]

    class Watching(GivenOptions):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            self._values = Watched(self._values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_options, "GivenOptions", Watching)
        SinkOptions.parse(values, VALUE, streaming=True)
    assert asked == {name.lower() for name in KNOWN}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.acks": "2"}, "it may be all or -1 or 1 or 0"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.compression.type": "brotli"}, "it may be none or gzip"),
        ({"kafka.batch.size": "0"}, "a number from 1"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "a number from 1 to 5"),
        ({"topic": "a b"}, "option topic: "),
        ({"delivery": "twice"}, "it may be at-least-once or exactly-once"),
        ({"topc": "t"}, "is topic meant"),
        ({"subscribe": "t"}, "there is no option subscribe"),
        ({"kafka.security.protocol": "tls"}, "option kafka.security.protocol: must be one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "sasl_ssl"}, "option kafka.sasl.mechanism: must be one of PLAIN"),
        (
            {"kafka.security.protocol": "ssl", "kafka.ssl.trust.location": "x"},
            "unknown setting; did you mean",
        ),
        ({"kafka.bootstrap.servers": "one:x"}, "option kafka.bootstrap.servers: "),
    ],
)
def test_a_bad_value_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


ALL = {"key": "string", "value": "string", "headers": HEADERS, "topic": "string", "partition": "int"}


def test_columns_are_those_of_sparks_connector() -> None:
    assert parse(ALL).topic == "t"
    without = {name: value for name, value in BASE.items() if name != "topic"}
    assert SinkOptions.parse(without, ALL, streaming=False).topic is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": "binary"}, "rows have no column value"),
        ({"value": "bigint"}, "column value is bigint; it must be string or binary"),
        ({"value": "binary", "partition": "bigint"}, "column partition is bigint; it must be int"),
        ({"value": "binary", "topic": "binary"}, "column topic is binary; it must be string"),
        ({"value": "binary", "headers": "map<string,string>"}, "column headers is map"),
        ({"value": "binary", "timestamp": "timestamp"}, "no column 'timestamp' to write; select those that are: key"),
    ],
)
def test_other_columns_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(columns)


def test_a_topic_has_to_come_from_somewhere() -> None:
    with pytest.raises(OptionError, match="no column topic, and option topic is not set"):
        SinkOptions.parse({"kafka.bootstrap.servers": "one:1"}, VALUE, streaming=True)


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match="write with mode append"):
        SinkOptions.parse(BASE, VALUE, streaming=False, overwrite=True)
