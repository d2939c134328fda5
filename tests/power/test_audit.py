"""Answers that come too early are found: in traces made by hand, where it is known which do."""

from __future__ import annotations

import os

import pytest

from tests.power import trace
from tests.power.audit import Audit, audit
from tests.power.history import History, Op
from tests.power.recording import Recording
from tests.power.trace import Record

ROOT = "/r"
LOG = f"{ROOT}/t-0/00.log"
TOKEN = 17


class Script:
    """A trace in which a file of partition t-0 gets one record, and an answer leaves somewhere."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.answered = 0
        self.add(trace.MKDIR, path=f"{ROOT}/t-0")
        self.add(trace.OPEN, a=3, b=os.O_CREAT, path=LOG)
        self.add(trace.OPEN, a=4, b=os.O_DIRECTORY, path=f"{ROOT}/t-0")
        self.add(trace.OPEN, a=5, b=os.O_DIRECTORY, path=ROOT)

    def add(self, kind: int, *, a: int = 0, b: int = 0, c: int = 0, path: str = "", data: bytes = b"") -> int:
        place = trace.HEADER_SIZE + 8 * len(self.records)
        self.records.append(Record(place, kind, 0, 1, a, b, c, path, data))
        return place

    def write(self, data: bytes = b"..q%08dq.." % TOKEN) -> None:
        self.add(trace.WRITE, a=3, c=len(data), data=data)

    def sync(self, *descriptors: int) -> None:
        for fd in descriptors:
            self.add(trace.SYNC_END, c=self.add(trace.SYNC_BEGIN, a=fd))

    def answer(self) -> None:
        self.answered = self.add(trace.SEND, a=9, c=8)

    def judged(self) -> Audit:
        op = Op("records", {}, 0, (0, 1), 1, result={}, answered=self.answered, token=TOKEN, place="t-0/")
        history = History()
        history.ops["records"].append(op)
        self.add(trace.MARK)
        return audit(Recording("made up", ROOT, self.records, history, {}))


@pytest.fixture
def script() -> Script:
    return Script()


def early(found: Audit) -> bool:
    assert found.count == 1
    return len(found.early) == 1


def test_answer_behind_every_sync(script: Script) -> None:
    script.write()
    script.sync(3, 4, 5)
    script.answer()
    assert not early(script.judged())


def test_answer_before_the_sync_of_its_bytes(script: Script) -> None:
    script.sync(4, 5)
    script.write()
    script.answer()
    script.sync(3)
    assert early(script.judged())


def test_answer_while_the_sync_runs(script: Script) -> None:
    script.sync(4, 5)
    script.write()
    began = script.add(trace.SYNC_BEGIN, a=3)
    script.answer()
    script.add(trace.SYNC_END, c=began)
    assert early(script.judged())


def test_sync_that_began_before_the_write(script: Script) -> None:
    script.sync(4, 5)
    began = script.add(trace.SYNC_BEGIN, a=3)
    script.write()
    script.add(trace.SYNC_END, c=began)
    script.answer()
    assert early(script.judged())


@pytest.mark.parametrize("synced", [(3, 4), (3, 5)])
def test_name_that_is_not_durable(script: Script, synced: tuple[int, ...]) -> None:
    script.write()
    script.sync(*synced)
    script.answer()
    assert early(script.judged())


def test_nothing_was_written(script: Script) -> None:
    script.write(b"something else")
    script.sync(3, 4, 5)
    script.answer()
    assert early(script.judged())


def test_copy_that_compaction_made_is_no_first_write(script: Script) -> None:
    script.write()
    script.sync(3, 4, 5)
    script.add(trace.OPEN, a=6, b=os.O_CREAT, path=f"{LOG}.cleaned")
    script.add(trace.WRITE, a=6, c=10, data=b"q%08dq" % TOKEN)
    script.answer()
    assert not early(script.judged())


def test_file_that_is_gone_proves_nothing(script: Script) -> None:
    script.write()
    script.add(trace.UNLINK, path=LOG)
    script.answer()
    found = script.judged()
    assert (found.count, found.gone, found.early) == (1, 1, [])
