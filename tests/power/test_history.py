"""When the broker sent which answer, found in the sends of a trace; and what it promises at a moment."""

from __future__ import annotations

import pytest

from tests.power import trace
from tests.power.history import NEVER, History, Op, resolve, sent_answers
from tests.power.trace import Record, TraceError

PORT, SOCKET = 4000, 7


def answer(correlation: int, size: int = 4) -> bytes:
    return (4 + size).to_bytes(4, "big") + correlation.to_bytes(4, "big") + b"." * size


def tape(*pieces: tuple[bytes, int] | int, first: int = 1, socket: int = SOCKET) -> list[Record]:
    """Return a sequence of sends, each (bytes kept, size); a number means that many bytes of the previous one were not
    sent.
    """
    records = [Record(100, trace.PROCESS, 0, 1, 0, 0, 0, "", b"")]
    for place, piece in enumerate(pieces, first):
        if isinstance(piece, int):
            records.append(Record(100 + place, trace.SEND, trace.FLAG_FAILED, 1, socket, 0, piece, "", b""))
        else:
            records.append(Record(100 + place, trace.SEND, 0, 1, socket, PORT, piece[1], "", piece[0]))
    return records


def places(*pieces: tuple[bytes, int] | int) -> dict[int, int]:
    """Correlation id → place."""
    found = sent_answers(tape(*pieces))
    return {number: place for (_, port, number), (place,) in found.items() if port == PORT}


def whole(data: bytes) -> tuple[bytes, int]:
    return data, len(data)


def test_one_answer_a_send() -> None:
    assert places(whole(answer(1)), whole(answer(2))) == {1: 101, 2: 102}


def test_many_answers_in_one_send() -> None:
    assert places(whole(answer(1) + answer(2, 0) + answer(3))) == {1: 101, 2: 101, 3: 101}


def test_answer_in_pieces_counts_from_its_first_byte() -> None:
    data = answer(1) + answer(2)
    assert places(whole(data[:14]), whole(data[14:17]), whole(data[17:])) == {1: 101, 2: 101}
    assert places(whole(data[:12]), whole(data[12:])) == {1: 101, 2: 102}


def test_bytes_that_were_not_taken_come_again() -> None:
    data = answer(1) + answer(2)
    assert places(whole(data), 14, whole(data[-14:])) == {1: 101, 2: 103}
    assert places(whole(data), 2, whole(data[-2:])) == {1: 101, 2: 101}
    assert places(whole(answer(1)), 12, whole(answer(1))) == {1: 103}


def test_file_ranges_are_stepped_over() -> None:
    head = (4 + 1000).to_bytes(4, "big") + (5).to_bytes(4, "big")
    assert places((head, 8), (b"", 1000), whole(answer(6))) == {5: 101, 6: 103}


def test_answers_of_an_older_protocol_are_counted() -> None:
    found = sent_answers(tape(whole(answer(9)), whole(answer(9))))
    assert (found[0, -PORT, 0], found[0, -PORT, 1]) == ([101], [102])


def test_port_of_a_later_connection_is_not_mistaken_for_the_earlier_one() -> None:
    """The first connection broke in the middle of an answer; the second counts from 1 again."""
    earlier, later = tape(whole(answer(1)), whole(answer(2)[:6])), tape(whole(answer(1)), first=10, socket=SOCKET + 1)
    history = History()
    ops = [Op("p", {}, begun, (0, PORT), 1, result={}) for begun in (50, 105)]
    history.ops["p"] += ops
    resolve(history, earlier + later[1:])
    assert [op.answered for op in ops] == [101, 110]


def test_send_to_a_client_that_is_gone_shortens_nobody_elses() -> None:
    """The peer has no port any more, so that only the failure is noted; the descriptor was another client's before."""
    gone = tape(50, first=2, socket=SOCKET + 1)
    assert sent_answers(tape(whole(answer(1))) + gone[1:])[0, PORT, 1] == [101]


def test_op_is_promised_from_the_send_on() -> None:
    history = History()
    op = Op("p", {}, 50, (0, PORT), 1, result={})
    unanswered = Op("p", {}, 50, (0, PORT), 2)
    history.ops["p"] += [op, unanswered]
    resolve(history, tape(whole(answer(1))))
    assert op.answered == 101
    assert unanswered.answered == NEVER
    assert [op.promised(moment) for moment in (101, 102)] == [False, True]
    assert [op.possible(moment) for moment in (49, 50)] == [False, True]


def test_an_answer_without_a_send_makes_the_recording_useless() -> None:
    history = History()
    history.ops["p"].append(Op("p", {}, 50, (0, PORT), 3, result={}))
    with pytest.raises(TraceError):
        resolve(history, tape(whole(answer(1))))
