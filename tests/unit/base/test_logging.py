"""Log lines: one event a line, structure kept, floods held back."""

import io
import json
import logging

import pytest

from kafkalite.base.logging import (
    KINDS_MAX,
    LINES_PER_SECOND_MAX,
    MESSAGE_SIZE_MAX,
    REPEAT_INTERVAL_S,
    ROOT,
    VALUE_SIZE_MAX,
    JsonFormatter,
    RepeatFilter,
    RepeatLogger,
    TextFormatter,
    configure,
    fields,
)


def record(message: str, *args: object, created: float = 1_700_000_000.5, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("kafkalite.test", logging.INFO, __file__, 1, message, args, None)
    made.created, made.msecs = created, 500.0
    if extra:
        made.fields = extra
    return made


def test_text_line_has_time_level_logger_message_and_fields() -> None:
    line = TextFormatter().format(record("topic created", topic="a b", partitions=3))
    assert line == '2023-11-14T22:13:20.500Z INFO    kafkalite.test topic created topic="a b" partitions=3'


def test_a_client_cannot_forge_a_second_line() -> None:
    line = TextFormatter().format(record("unknown client %s", "x\nERROR all is lost", name="a\nb"))
    assert "\n" not in line


def test_a_client_cannot_speak_to_a_terminal_or_fill_a_line() -> None:
    hostile = 'quo"te\x1b[2J\r\u2028\x9b' + "x" * 65536
    line = TextFormatter().format(record("unknown client %s", hostile, name=hostile))
    assert line.isprintable()
    assert len(line) < MESSAGE_SIZE_MAX + 2 * VALUE_SIZE_MAX
    told = json.loads(JsonFormatter().format(record("unknown client %s", hostile, name=hostile)))
    assert told["name"].startswith('quo"te\\x1b[2J')
    assert len(told["message"]) < 2 * MESSAGE_SIZE_MAX


def test_an_error_that_quotes_a_client_forges_no_line() -> None:
    error = ValueError("x\n2026-01-01T00:00:00.000Z ERROR all is lost\x1b[2J")
    made = logging.LogRecord("kafkalite.test", logging.ERROR, __file__, 1, "failed", (), (ValueError, error, None))
    first, *rest = TextFormatter().format(made).split("\n")
    assert first.endswith("kafkalite.test failed")
    assert rest
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_json_line_carries_the_fields() -> None:
    line = json.loads(JsonFormatter().format(record("closed", reason="too long", size=5)))
    assert line == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "INFO",
        "logger": "kafkalite.test",
        "message": "closed",
        "reason": "too long",
        "size": 5,
    }


def test_a_flood_of_one_line_is_held_back_and_counted() -> None:
    flood = RepeatFilter()
    passed = sum(flood.filter(record("bad frame", created=1.0)) for _ in range(LINES_PER_SECOND_MAX + 30))
    assert passed == LINES_PER_SECOND_MAX
    assert flood.filter(record("another line", created=1.0))
    following = record("bad frame", created=2.0)
    assert flood.filter(following)
    assert "30 similar lines suppressed" in following.getMessage()


@pytest.fixture
def untouched_logging():
    logger = logging.getLogger(ROOT)
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_configure_replaces_what_an_earlier_call_did(untouched_logging: None) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    configure(stream=second, json_lines=True, level="warning")
    logging.getLogger("kafkalite.x").info("quiet")
    logging.getLogger("kafkalite.x").warning("loud", extra=fields(n=1))
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["n"] == 1


def test_what_a_client_repeats_is_logged_once_a_minute_with_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RepeatLogger(logging.getLogger("kafkalite.repeats"))
    now = 1000.0
    monkeypatch.setattr("kafkalite._native.base.native_time.monotonic", lambda: now)
    for number in range(500):
        log.warning("request %d is refused", number)
        log.warning("another kind")
    now += REPEAT_INTERVAL_S
    log.warning("request %d is refused", 500)
    now += REPEAT_INTERVAL_S
    log.warning("request %d is refused", 501)
    assert [record.getMessage() for record in caplog.records] == [
        "request 0 is refused",
        "another kind",
        "request 500 is refused (499 similar lines suppressed)",
        "request 501 is refused",
    ]


def test_some_kinds_of_lines_are_allowed_a_few_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log = RepeatLogger(logging.getLogger("kafkalite.repeats"), lines=3)
    for number in range(10):
        log.error("topic %d", number)
    assert [record.getMessage() for record in caplog.records] == ["topic 0", "topic 1", "topic 2"]


def test_kinds_that_a_client_could_choose_are_no_way_round(caplog: pytest.LogCaptureFixture) -> None:
    log = RepeatLogger(logging.getLogger("kafkalite.repeats"))
    for number in range(KINDS_MAX + 50):
        log.warning("a line", kind=number)
    assert len(caplog.records) == KINDS_MAX + 1


def test_many_kinds_hold_back_no_line_of_another_logger_nor_of_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = (RepeatLogger(logging.getLogger(f"kafkalite.{name}")) for name in ("repeats", "other"))
    now = 1000.0
    monkeypatch.setattr("kafkalite._native.base.native_time.monotonic", lambda: now)
    for number in range(KINDS_MAX + 50):
        log.warning("a line", kind=number)
    caplog.clear()
    other.warning("one")
    other.warning("two")
    now += REPEAT_INTERVAL_S
    log.warning("a new kind")
    log.warning("another new kind")
    assert [record.getMessage() for record in caplog.records] == ["one", "two", "a new kind", "another new kind"]


def test_a_failure_is_logged_with_its_traceback_and_the_place_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("why")
    except ValueError:
        RepeatLogger(logging.getLogger("kafkalite.repeats")).exception("it failed", extra=fields(n=1))
    (record_of_it,) = caplog.records
    assert record_of_it.exc_info is not None
    assert record_of_it.filename == "test_logging.py"
    assert record_of_it.fields == {"n": 1}
