"""The source's options: names, values, precedence, refusals."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.load.selection import OffsetBound, OptionError, Subscription
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kafkalite.spark.java_clients import JAVA_FLAGS, JAVA_NAMES, JAVA_NUMBERS
from kafkalite.spark.options import (
    HONOURED,
    KNOWN,
    OF_BATCHES,
    OF_STREAMS,
    REFUSED,
    REFUSED_BY_STREAMS,
    SourceOptions,
    StreamOptions,
    includes_headers,
    log_without_effect,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
BASE = {"kafka.bootstrap.servers": "one:1", "subscribe": "a"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **options})


def test_defaults_are_those_of_sparks_connector() -> None:
    options = parse()
    assert options.starting == OffsetBound(everywhere=OFFSET_EARLIEST)
    assert options.ending == OffsetBound(everywhere=OFFSET_LATEST)
    assert options.subscription == Subscription(topics=("a",))
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.min_partitions is None
    assert options.size_target is None
    assert not options.pushdown
    assert options.client.isolation_level == "read_uncommitted"


def test_filters_are_of_batches_alone() -> None:
    assert parse(pushdown="true").pushdown
    with pytest.raises(OptionError, match="option pushdown cannot be set"):
        StreamOptions.parse({**BASE, "pushdown": "true"})


def test_names_are_in_any_case() -> None:
    given_options = {"KAFKA.bootstrap.SERVERS": "one:1", "SUBSCRIBEpattern": "a.*", "failondataLOSS": "FALSE"}
    options = SourceOptions.parse(given_options)
    assert options.subscription.pattern == "a.*"
    assert not options.fail_on_data_loss


STARTS = {
    "startingTimestamp": ("7", OffsetBound(timestamps=7)),
    "startingOffsetsByTimestamp": ('{"a": {"0": 8}}', OffsetBound(timestamps={A0: 8})),
    "startingOffsets": ('{"a": {"0": -2, "1": 3}}', OffsetBound(offsets={A0: OFFSET_EARLIEST, A1: 3})),
}
ENDS = {
    "endingTimestamp": ("7", OffsetBound(timestamps=7)),
    "endingOffsetsByTimestamp": ('{"a": {"0": 8}}', OffsetBound(timestamps={A0: 8})),
    "endingOffsets": ('{"a": {"0": -1, "1": 3}}', OffsetBound(offsets={A0: OFFSET_LATEST, A1: 3})),
}


@pytest.mark.parametrize(("ways", "attribute"), [(STARTS, "starting"), (ENDS, "ending")], ids=["starting", "ending"])
def test_the_first_of_the_bounds_counts(ways: dict, attribute: str) -> None:
    names = list(ways)
    while names:
        options = parse(**{name: ways[name][0] for name in names})
        assert getattr(options, attribute) == ways[names[0]][1]
        del names[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "cannot start at"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot start at"),
        ({"endingOffsets": "earliest"}, "cannot end at"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "cannot end at"),
        ({"endingOffsets": '{"a": {"0": -3}}'}, "a number of at least -2"),
        ({"startingOffsets": '{"a": {"0": 1, "00": 2}}'}, "contains a-0 twice"),
        ({"startingOffsets": '{"a": {"0": 1}, "a": {"0": 2}}'}, "duplicate key"),
        ({"startingOffsets": "erliest"}, "is not valid JSON"),
        ({"startingOffsets": "[1]"}, "must be a JSON object"),
        ({"startingOffsets": "[" * 100_000}, "is not valid JSON"),
        ({"startingOffsets": '{"a": 3}'}, "must be an object"),
        ({"startingOffsets": '{"a": {"x": 3}}'}, "'x' is not a partition number"),
        ({"startingOffsets": '{"a/b": {"0": 3}}'}, "character other than"),
        ({"startingTimestamp": "-1"}, "number from 0"),
        ({"startingTimestamp": "1_0"}, "number from 0"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"minPartitions": "0"}, "number from 1"),
        ({"maxBytesPerPartition": "lots"}, "number from 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"assign": '{"a": [0]}'}, "set exactly one of assign, subscribe and subscribePattern, not 2"),
        ({"subscribe": " , "}, "contains no topic"),
        ({"subscribe": "a,b/c"}, "character other than"),
        ({"kafka.bootstrap.servers": "one:x"}, "is not host:port"),
        ({"kafka.security.protocol": "TLS"}, "option kafka.security.protocol: must be one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "option kafka.sasl.mechanism: must be one of PLAIN"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({"startingOffset": "earliest"}, r"unknown option startingoffset; did you mean startingOffsets\?"),
        ({"xyzzy": "1"}, "docs/spark.md"),
        (
            {"kafka.max.pol.records": "1"},
            r"unknown option kafka.max.pol.records; did you mean kafka.max.poll.records\?",
        ),
        (
            {"kafka.sasl.jaas.configs": "x"},
            r"unknown option kafka.sasl.jaas.configs; did you mean kafka.sasl.jaas.config\?",
        ),
        ({"kafka.max.poll.records": "lots"}, "option kafka.max.poll.records must be a number from .*, not 'lots'"),
        ({"kafka.enable.metrics.push": "1"}, "option kafka.enable.metrics.push must be true or false, not '1'"),
        ({"fetchOffset.numRetries": "lots"}, "option fetchOffset.numRetries must be a number from .*, not 'lots'"),
        ({"maxRecordsPerPartition": "0"}, "number from 1"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_a_reason_in_batches(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be set: "):
        parse(**{name.upper(): "1"})


@pytest.mark.parametrize("name", sorted({**REFUSED, **REFUSED_BY_STREAMS}))
def test_refused_with_a_reason_in_streams(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be set: "):
        StreamOptions.parse({**BASE, name.upper(): "1"})


def test_what_is_always_refused_is_no_known_option() -> None:
    assert not set(REFUSED) & set(KNOWN)
    assert set(REFUSED_BY_STREAMS) <= set(KNOWN)


VALUES = dict.fromkeys(JAVA_NUMBERS, "1") | dict.fromkeys(JAVA_FLAGS, "true")


@pytest.mark.parametrize("kind", [SourceOptions, StreamOptions])
def test_every_name_of_the_java_clients_is_honoured_refused_or_listed(kind: type) -> None:
    """In any case, and for every kind of client, as Spark's connector passes all of them on."""
    names = JAVA_NAMES - {*HONOURED, *REFUSED}
    parsed = kind.parse({**BASE, **{name.upper(): VALUES.get(name, "x") for name in names}})
    source = parsed.source if isinstance(parsed, StreamOptions) else parsed
    assert source.without_effect == tuple(sorted(names))
    assert len(names) > 60
    plain = {name: VALUES.get(name, "x") for name in names if not name.startswith(("kafka.sasl.", "kafka.security."))}
    assert kind.parse({**BASE, **plain}) == kind.parse(BASE)


def test_what_belongs_to_another_kind_of_query_is_listed() -> None:
    values = dict.fromkeys(OF_STREAMS, "1") | {"commitOffsetsOnBatch": "true", "topic": "t"}
    assert parse(**values).without_effect == tuple(sorted(values))
    assert StreamOptions.parse({**BASE, "endingTimestamp": "1"}).source.without_effect == OF_BATCHES


def test_what_has_no_effect_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_without_effect(parse(subscribe="a").without_effect)
        log_without_effect(parse(**{"kafka.max.poll.records": "5", "kafka.session.timeout.ms": "9"}).without_effect)
    assert [record.getMessage() for record in caplog.records] == [
        'format("kafkalite"): these options have no effect: kafka.max.poll.records, kafka.session.timeout.ms'
    ]


class TestStreams:
    def test_defaults(self) -> None:
        options = StreamOptions.parse(BASE)
        assert options.source.starting == OffsetBound(everywhere=OFFSET_LATEST)
        assert (options.rows_max, options.rows_min, options.size_max, options.group_id) == (None, None, None, None)
        assert options.delay_max_s == 900
        assert options.commits

    def test_limits(self) -> None:
        limits = {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3", "maxBytesPerTrigger": "1000000"}
        options = StreamOptions.parse({**BASE, **limits, "kafka.group.id": "g", "commitOffsetsOnBatch": "false"})
        assert (options.rows_max, options.rows_min, options.size_max, options.group_id) == (9, 3, 1000000, "g")
        assert not options.commits

    @pytest.mark.parametrize(
        ("text", "seconds"), [("15m", 900), ("500ms", 0.5), ("3", 3), ("2 h", 7200), ("1D", 86400), ("7min", 420)]
    )
    def test_times(self, text: str, seconds: float) -> None:
        assert StreamOptions.parse({**BASE, "maxTriggerDelay": text}).delay_max_s == seconds

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"maxTriggerDelay": "soon"}, "duration like 500ms"),
            ({"maxTriggerDelay": "-1s"}, "duration like 500ms"),
            ({"maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "3"}, "is above maxOffsetsPerTrigger"),
            ({"maxBytesPerTrigger": "0"}, "number from 1"),
            ({"kafka.group.id": ""}, "is empty"),
            ({"maxOffsetPerTrigger": "2"}, "did you mean maxOffsetsPerTrigger"),
        ],
    )
    def test_what_cannot_be_meant(self, options: dict, message: str) -> None:
        with pytest.raises(OptionError, match=message):
            StreamOptions.parse({**BASE, **options})


def test_headers_are_known_before_the_kind_of_query() -> None:
    assert includes_headers({"INCLUDEHEADERS": "true", "endingOffsets": "latest", "maxOffsetsPerTrigger": "3"})
    assert not includes_headers({})


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "subscribe"])
def test_what_has_to_be_said(missing: str) -> None:
    with pytest.raises(OptionError, match=missing):
        SourceOptions.parse({name: value for name, value in BASE.items() if name != missing})


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"a": [1, 0, 1]}', (A0, A1)), ('{"a": []}', None), ('{"a": [true]}', None), ('{"a": [-1]}', None), ("{}", None)],
)
def test_assign(text: str, expected: tuple | None) -> None:
    given_options = {"kafka.bootstrap.servers": "one:1", "assign": text}
    if expected is None:
        with pytest.raises(OptionError, match="assign"):
            SourceOptions.parse(given_options)
    else:
        assert SourceOptions.parse(given_options).subscription == Subscription(assigned=expected)


@pytest.mark.parametrize("pattern", ["(", " "])
def test_a_pattern_that_is_none(pattern: str) -> None:
    with pytest.raises(OptionError, match="subscribePattern"):
        SourceOptions.parse({"kafka.bootstrap.servers": "one:1", "subscribePattern": pattern})


def test_a_pattern_is_looked_for_in_the_name() -> None:
    """As by Spark's own connector, which finds "orders" in "old-orders"."""
    found = SourceOptions.parse({"kafka.bootstrap.servers": "one:1", "subscribePattern": " b.? "}).subscription
    assert [found.wants(name) for name in ("ab", "abc", "b", "a")] == [True, True, True, False]
    assert [Subscription(pattern=r"^b.?$").wants(name) for name in ("ab", "bc")] == [False, True]
    assert [Subscription(pattern="b.?", whole_name=True).wants(name) for name in ("ab", "bc")] == [False, True]


def test_settings_of_the_client() -> None:
    client = parse(**{"kafka.request.timeout.ms": "1500", "kafka.client.id": "me", "kafka.check.crcs": "false"}).client
    assert dict(client.options) == {"request_timeout_s": 1.5, "client_id": "me"}
    assert not client.check_crcs


@given(st.dictionaries(st.sampled_from(sorted(KNOWN)), st.text(max_size=20)))
def test_any_text_is_parsed_or_refused_in_words(options: dict) -> None:
    refusal = "parsed"
    try:
        SourceOptions.parse(options)
    except OptionError as error:
        refusal = str(error)
    assert refusal
