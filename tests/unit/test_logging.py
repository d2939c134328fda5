"""Log lines: one event a line, structure kept, floods held back."""

import io
import json
import logging

import pytest

from kafkalite.logging import LINES_PER_SECOND_MAX, ROOT, JsonFormatter, RepeatFilter, TextFormatter, configure, fields


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
    assert "30 more lines like this were held back" in following.getMessage()


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
