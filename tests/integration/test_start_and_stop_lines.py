"""Log lines of a start and a stop: version, address, reason, duration, clean or not."""

import errno
import logging
from pathlib import Path

import pytest

from kafkalite import __version__
from kafkalite.broker import Broker
from kafkalite.broker.log import directory

pytestmark = pytest.mark.integration

LISTENERS = "kafka://127.0.0.1:0,kafka07://127.0.0.1:0"


def told(caplog: pytest.LogCaptureFixture, beginning: str) -> tuple[str, str, dict[str, object]]:
    """Level, text and fields of the one line that begins so."""
    (record,) = (row for row in caplog.records if row.getMessage().startswith(beginning))
    return record.levelname, record.getMessage(), dict(record.fields)


def test_a_start_says_version_and_listeners_and_a_stop_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafkalite")
    broker = Broker(log_dirs=str(tmp_path), listeners=LISTENERS).start()
    kafka, classic = (broker.endpoints[name] for name in ("KAFKA", "KAFKA07"))
    broker.stop("the test has seen enough")
    level, text, fields = told(caplog, f"kafkalite {__version__} serves ")
    assert (level, text) == ("INFO", f"kafkalite {__version__} serves KAFKA://{kafka}, KAFKA07://{classic}")
    assert (fields["data"], fields["partitions"], fields["last_stop"]) == (str(tmp_path), 0, "clean")
    level, text, fields = told(caplog, "kafkalite stopped")
    assert (level, text) == ("INFO", "kafkalite stopped: the test has seen enough")
    assert (fields["clean"], fields["seconds"] >= 0) == ("yes", True)
    caplog.clear()
    broker.stop()
    assert caplog.records == [], "there was nothing to stop"


def test_a_stop_that_was_not_clean_is_a_warning_and_the_next_start_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kafkalite")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(directory, "leave_clean_marker", full)
        with Broker(log_dirs=str(tmp_path)):
            pass
    level, _, fields = told(caplog, "kafkalite stopped")
    assert (level, fields["clean"]) == ("WARNING", "no: the next start checks the logs")
    caplog.clear()
    with Broker(log_dirs=str(tmp_path)):
        assert told(caplog, f"kafkalite {__version__} serves ")[2]["last_stop"] == "unclean: logs were checked"
