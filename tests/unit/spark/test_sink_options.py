"""The sink's options: names, values, columns, refusals."""

import pytest

from kafkalite.load.selection import OptionError
from kafkalite.spark.java_clients import JAVA_FLAGS, JAVA_NAMES, JAVA_NUMBERS, SECURITY_NAMES
from kafkalite.spark.options import GivenOptions
from kafkalite.spark.sink import options as sink_options
from kafkalite.spark.sink.options import HEADERS, HONOURED, KNOWN, REFUSED, WITHOUT_EFFECT, SinkOptions
from kafkalite.wire.record.compression import Codec

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
    with pytest.raises(OptionError, match="option delivery: exactly-once works in streaming queries"):
        parse(streaming=False, delivery="exactly-once")
    for weak in ({"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}):
        with pytest.raises(OptionError, match=r"option delivery: exactly-once needs kafka.acks=all"):
            parse(delivery="exactly-once", **weak)


@pytest.mark.parametrize(
    ("name", "value"),
    [("includeHeaders", "true"), ("kafka.linger.ms", "5"), ("checkpointLocation", "x"), ("queryName", "x")],
)
def test_some_change_nothing(name: str, value: str) -> None:
    assert parse(**{name: value}) == parse()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be set"):
        parse(**{name.upper(): "x"})


def test_every_known_option_is_asked_for() -> None:
    names = set(KNOWN) - SECURITY_NAMES  # those are asked for by their beginning
    values = dict.fromkeys(names, "1") | dict.fromkeys(JAVA_FLAGS & names, "true")
    values |= {
        "kafka.bootstrap.servers": "one:1",
        "kafka.acks": "all",
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
    assert asked == {name.lower() for name in names}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.acks": "2"}, "must be all or -1 or 1 or 0"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.compression.type": "brotli"}, "must be none or gzip"),
        ({"kafka.batch.size": "-1"}, "a number from 0"),
        ({"kafka.max.in.flight.requests.per.connection": "0"}, "a number from 1"),
        ({"kafka.compression.zstd.level": "23"}, "a number from -131072 to 22"),
        ({"kafka.linger.ms": "soon"}, "option kafka.linger.ms must be a number from .*, not 'soon'"),
        (
            {"kafka.max.request.sizes": "1"},
            r"unknown option kafka.max.request.sizes; did you mean kafka.max.request.size\?",
        ),
        ({"topic": "a b"}, "option topic: "),
        ({"delivery": "twice"}, "must be at-least-once or exactly-once"),
        ({"topc": "t"}, "did you mean topic"),
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
        ({"key": "binary"}, "column value is missing"),
        ({"value": "bigint"}, "column value has type bigint; expected string or binary"),
        ({"value": "binary", "partition": "bigint"}, "column partition has type bigint; expected int"),
        ({"value": "binary", "topic": "binary"}, "column topic has type binary; expected string"),
        ({"value": "binary", "headers": "map<string,string>"}, "column headers has type map"),
    ],
)
def test_other_columns_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(columns)


def test_a_topic_has_to_come_from_somewhere() -> None:
    with pytest.raises(OptionError, match="no topic to write to"):
        SinkOptions.parse({"kafka.bootstrap.servers": "one:1"}, VALUE, streaming=True)


def test_overwriting_is_refused_but_for_a_stream_in_complete_mode() -> None:
    """Spark's own connector writes all rows of each batch then, and so does this one."""
    with pytest.raises(OptionError, match="use mode append"):
        SinkOptions.parse(BASE, VALUE, streaming=False, overwrite=True)
    assert SinkOptions.parse(BASE, VALUE, streaming=True, overwrite=True) == parse()


def test_other_columns_are_left_out_and_listed() -> None:
    options = parse({"id": "bigint", "value": "binary", "timestamp": "timestamp", "key": "string"})
    assert options.columns == ("value", "key")
    assert options.without_effect == ("column id", "column timestamp")
    assert parse(ALL).columns is None


def test_every_name_of_the_java_clients_is_honoured_refused_or_listed() -> None:
    names = JAVA_NAMES - {*HONOURED, *REFUSED}
    values = (
        dict.fromkeys(names, "x") | dict.fromkeys(JAVA_NUMBERS & names, "1") | dict.fromkeys(JAVA_FLAGS & names, "true")
    )
    assert parse(**values).without_effect == tuple(sorted(names))
    assert {"kafka.retries", "kafka.max.request.size", "kafka.linger.ms", "kafka.group.id"} <= names


def test_options_of_reading_queries_are_listed() -> None:
    assert parse(subscribe="t", startingOffsets="earliest").without_effect == ("startingOffsets", "subscribe")
    assert {"subscribe", "includeHeaders", "groupIdPrefix"} <= set(WITHOUT_EFFECT)


def test_the_level_of_the_codec_that_compresses() -> None:
    levels = {"kafka.compression.gzip.level": "9", "kafka.compression.zstd.level": "7"}
    assert dict(parse(**levels, **{"kafka.compression.type": "zstd"}).producer)["level"] == 7
    assert "level" not in dict(parse(**levels, **{"kafka.compression.type": "snappy"}).producer)


def test_keys_that_decide_nothing() -> None:
    assert dict(parse(**{"kafka.partitioner.ignore.keys": "true"}).producer)["ignore_keys"] is True
