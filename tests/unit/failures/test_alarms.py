"""Alarms to an address that takes its time, or would have them sent elsewhere."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from kafkalite.failures import alarms
from kafkalite.failures.alarms import AlarmSender
from kafkalite.failures.events import Alarm
from tests.kit.fakes.raw_http import DRIPS, HEADER_DRIPS, Answer, RawHttp, dripping, redirect_to, sent
from tests.kit.processes.broker import wait_until

WAIT_S = 60
GOOD = sent(b"HTTP/1.1 204 No Content\r\n\r\n")
ALARM = Alarm("loss", "too many", {})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "BACKOFF_S", 0.01)


def id_of(request: bytes) -> str:
    return str(json.loads(request.partition(b"\r\n\r\n")[2])["id"])


def at_first(odd: Answer) -> Answer:
    """So once, and well from then on."""
    answers: list[Answer] = [odd]

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        (answers.pop() if answers else GOOD)(connection, ended)

    return answer


def sent_to(server: RawHttp, until: Callable[[], bool]) -> None:
    sender = AlarmSender(server.url, "billing")
    try:
        sender.send(ALARM)
        wait_until(until, WAIT_S, "what is waited for")
    finally:
        sender.close()


@pytest.mark.parametrize(("first", "drop"), HEADER_DRIPS)
def test_an_answer_that_drips_is_a_try_that_failed(monkeypatch: pytest.MonkeyPatch, first: bytes, drop: bytes) -> None:
    monkeypatch.setattr(alarms, "TRY_S", 0.5)
    with RawHttp(at_first(dripping(first, drop))) as server:
        sent_to(server, lambda: len(server.requests) == 2)
    assert len({id_of(request) for request in server.requests}) == 1


@pytest.mark.parametrize(("first", "drop"), DRIPS[len(HEADER_DRIPS) :])
def test_an_alarm_that_was_taken_is_not_sent_again_for_what_drips_behind(first: bytes, drop: bytes) -> None:
    with RawHttp(at_first(dripping(first, drop))) as server:
        sender = AlarmSender(server.url, "billing")
        sender.send(ALARM)
        sender.send(ALARM)
        wait_until(lambda: len(server.requests) == 2, WAIT_S, "both alarms")
        sender.close()
    assert len({id_of(request) for request in server.requests}) == 2


def test_an_alarm_goes_nowhere_else() -> None:
    with RawHttp(GOOD) as other, RawHttp(at_first(redirect_to(other.url, "307 Temporary Redirect"))) as server:
        sent_to(server, lambda: len(server.requests) == 2)
    assert other.requests == []
    assert len({id_of(request) for request in server.requests}) == 1


def test_log_lines_name_the_host_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = "http://me:s3cret@127.0.0.1:1/s3cret"  # nobody listens there
    sender = AlarmSender(address, "billing")
    sender.send(ALARM)
    wait_until(lambda: "sending an alarm to 127.0.0.1:1 failed after" in caplog.text, WAIT_S, "it gives up")
    sender.close()
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("address", ["hooks.example.com/s3cret", "https://me:s3cret\uff03@hooks.example.com"])
def test_an_address_that_is_refused_is_not_quoted(address: str) -> None:
    with pytest.raises(ValueError, match="is not an http:// or https:// URL") as refusal:
        AlarmSender(address, "billing")
    assert "s3cret" not in str(refusal.value)


def test_an_alarm_may_quote_what_is_no_unicode() -> None:
    with RawHttp(GOOD) as server:
        sender = AlarmSender(server.url, "billing")
        try:
            sender.send(Alarm("stopped", "no customer \ud83d", {"record": "orders-0-1"}))
            wait_until(lambda: len(server.requests) == 1, WAIT_S, "the alarm")
        finally:
            sender.close()
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2])["reason"] == "no customer ?"


def test_an_alarm_that_cannot_be_posted_at_all_leaves_the_next_one_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[bytes] = []

    def post(_: AlarmSender, body: bytes) -> None:
        if json.loads(body)["kind"] == "odd":
            raise ValueError("no address after all")
        posted.append(body)

    monkeypatch.setattr(AlarmSender, "_post", post)
    sender = AlarmSender("http://127.0.0.1:1/", "billing")
    sender.send(Alarm("odd", "", {}))
    sender.send(ALARM)
    sender.close()
    assert [json.loads(body)["kind"] for body in posted] == ["loss"]
