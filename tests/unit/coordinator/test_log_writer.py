"""Writes of one partition: everybody who waits is told how it went."""

import threading
from typing import Any

import pytest

from kafkalite.coordinator.log_writer import LogWriter
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.pool import IoPool

TIMEOUT_S = 60.0


class LogThatCannotFlush:
    """Takes appends; asking it for a flush fails at once."""

    log_end_offset = 1

    def __init__(self, error: Exception) -> None:
        self.error = error

    def flush_async(self, _end_offset: int, _callback: object) -> None:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("no flusher"), StorageError("no disk")], ids=["any", "known"])
def test_flush_that_cannot_be_asked_for_is_told_to_who_waits(error: Exception) -> None:
    pool = IoPool(1)
    log: Any = LogThatCannotFlush(error)
    writer = LogWriter("t-0", lambda: log, pool, flush=True)
    codes: list[int] = []
    for _ in range(2):  # the writer goes on behind it
        told = threading.Event()
        writer.write(lambda _log: 1, lambda code, told=told: (codes.append(code), told.set()))
        assert told.wait(TIMEOUT_S)
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert pool.close(TIMEOUT_S)
    assert writer.idle
