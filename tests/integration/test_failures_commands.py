"""`kafkalite failures` and `kafkalite letters`: a handler by a policy file, and the ways out of a dead letter."""

import hashlib
import json
import logging
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Self

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.failures import Ledger, Message, Policy, RetryHere, RetryTopics
from kafkalite.failures.alarms import AlarmSender
from kafkalite.failures.events import Alarm
from kafkalite.failures.headers import found_letter
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.names import ledger_name
from kafkalite.failures.rows import Row, State, encode_row
from kafkalite.failures.topics import DEAD_LETTER_SETTINGS, ensure
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.harness.failing_groups import MemberThread, is_done, numbers, play, records, small_broker
from tests.kit.processes.broker import REPOSITORY, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 60.0
BATCH_OVERHEAD = 61 + 12
"""Bytes of a batch around the value of a record without key: its header, and the record's own lengths and deltas."""

HANDLER = """
import os, pathlib, signal
def handle(record, transaction):
    number = int(record.value)
    if number == 13 and not pathlib.Path("mended").exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    if number % 10 == 7 and not pathlib.Path("mended").exists():
        raise ValueError("seven")
    transaction.send("done", record.value, partition=0)
"""
POLICY = """
group = "billing"
topics = ["orders"]
fatal = ["ValueError"]
[strategy]
kind = "RetryTopics"
delays = ["1 s"]
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        for topic in ("orders", "done"):
            client.admin.create_topic(topic, 1)
        client.produce("orders", 0, [Record(-1, -1, b"k", b"%d" % n) for n in range(40)])
        yield client


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(HANDLER)
    (tmp_path / "billing.toml").write_text(POLICY)
    return tmp_path


class Member:
    """`kafkalite failures run` as a process."""

    def __init__(self, broker: Broker, place: Path) -> None:
        words = ["failures", "run", "shop:handle", "--policy", "billing.toml", "--member", "m1", "--restarts", "9"]
        with (place / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", *words, "-b", broker.bootstrap_servers],
                cwd=place,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                stdout=out,
                stderr=out,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(60)


def done(client: Client) -> Counter[bytes | None]:
    return Counter(record.value for record in records(client, "done"))


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main([*words, "--json"]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_restarts_are_counted_by_the_last_flag_however_it_is_written(place: Path) -> None:
    (place / "shop.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    words = ["failures", "run", "shop:handle", "--policy", "billing.toml", "--restarts", "9", "--restarts=1"]
    ended = subprocess.run(
        [sys.executable, "-m", "kafkalite", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "kafkalite: the member was killed by signal 9 and is restarted",
        "kafkalite: the member was killed by signal 9; no restarts are left",
    ]


@pytest.mark.slow
def test_a_record_that_kills_the_process_and_the_way_back_of_its_letter(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("-b", broker.bootstrap_servers)
    with Member(broker, place):
        wait_until(lambda: done(client).total() == 35, TIMEOUT_S, "all others are processed", 0.2)
        letters = said(capsys, "letters", "list", "billing", *at)
        assert {(row["record"], row["exception"]) for row in letters} == {
            *((f"orders-0-{n}", "ValueError") for n in (7, 17, 27, 37)),
            ("orders-0-13", "crashed"),
        }
        (crashed,) = (row for row in letters if row["exception"] == "crashed")
        assert crashed["error"] == "the process died 2 times while it processed this record"
        # The first end names no record. A mark that was on its way when the process ended costs one more.
        assert (place / "out").read_text().count("was killed by signal 11") in {3, 4}
        (row,) = said(capsys, "letters", "show", "billing", "orders-0-7", *at)
        assert (row["value"], row["error"], row["state"]) == ("7", "seven", "dead")
        assert said(capsys, "letters", "redrive", "billing", *at) == [
            {"would_send": 5, "exceptions": {"ValueError": 4, "crashed": 1}}
        ]
        (place / "mended").touch()
        words = ("letters", "redrive", "billing", "--yes", *at)
        assert said(capsys, *words, "--exception", "ValueError", "--first", "2") == [{"sent": 2, "too_often": 0}]
        assert said(capsys, *words) == [{"sent": 3, "too_often": 0}]
        assert said(capsys, *words) == [{"sent": 0, "too_often": 0}]
        wait_until(lambda: done(client).total() == 40, TIMEOUT_S, "letters are processed", 0.2)
        wait_until(
            lambda: said(capsys, "failures", "ledger", "billing", *at) == [], TIMEOUT_S, "the ledger is empty", 0.2
        )
    assert done(client) == Counter(b"%d" % n for n in range(40))
    assert client.end_offset("orders", 0) == 40  # nothing went where other groups read
    assert {row["state"] for row in said(capsys, "letters", "list", "billing", "--all", *at)} == {"processed"}


def test_a_redrive_is_delayed_and_sends_no_more_than_its_rate(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = Policy(group="billing", topics=["orders"], strategy=RetryHere(1))
    ends = {TopicPartition("orders", 0): 40}
    handled: list[tuple[bytes | None, float]] = []

    def fail(record: Message) -> None:
        raise ValueError

    def handle(record: Message) -> None:
        handled.append((record.value, time.time()))

    with MemberThread(broker.bootstrap_servers, policy, fail) as member:
        member.wait_until(lambda: is_done(client, "billing", ends), "all are dead")
    sent: list[int] = []
    begun = time.time()
    assert LetterBox(client, "billing").redrive(rate=16, delay="3 s", on_sent=sent.append).sent == 40
    assert sent == [16, 16, 8]
    letters = records(client, "retry.billing.orders.0s")
    due = {letter.value: int(dict(letter.headers)["dlq.due"] or b"") / 1000 for letter in letters}
    assert min(due.values()) >= begun + 3
    with MemberThread(broker.bootstrap_servers, policy, handle) as member:
        member.wait_until(lambda: len(handled) == 40, "all are handled")
    assert all(at >= due[value] for value, at in handled)
    at = ("-b", broker.bootstrap_servers)
    for words, error in (
        (("--delay", "2 d"), "at most 1 day"),
        (("--delay", "1 s", "--to", "main"), "only redrives to the group's retry topic can be delayed"),
        (("--delay", "soon"), "'soon' is not a duration"),
    ):
        capsys.readouterr()
        assert main(["letters", "redrive", "billing", "--yes", *words, *at]) == 2
        assert error in capsys.readouterr().err


def test_care_after_an_unclean_end_is_logged_and_shown_until_it_is_over(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    at = ("-b", broker.bootstrap_servers)
    policy = Policy(group="billing", topics=["orders"], strategy=RetryHere(1))
    assert ensure(policy, client) == []
    row = encode_row(Row(State.OPEN, member="gone", position=0))
    client.produce(policy.layout.ledger, 0, [Record(-1, -1, b"open/orders-0", row)])
    begun, go_on = threading.Event(), threading.Event()

    def handle(record: Message) -> None:
        if record.offset == 20:
            begun.set()
            go_on.wait(TIMEOUT_S)

    with caplog.at_level(logging.INFO), MemberThread(broker.bootstrap_servers, policy, handle, member="m1") as member:
        member.wait_until(begun.is_set, "record 20 is in hand")
        (status,) = said(capsys, "failures", "status", "billing", *at)
        (doubted,) = status["doubted"]
        assert {name: doubted[name] for name in ("partition", "first", "until", "member")} == {
            "partition": "orders-0",
            "first": 0,
            "until": 40,
            "member": "m1",
        }
        capsys.readouterr()
        assert main(["failures", "status", "billing", *at]) == 0
        assert "orders-0, offsets 0 to 39: the previous member did not" in capsys.readouterr().out
        go_on.set()
        member.wait_until(
            lambda: said(capsys, "failures", "status", "billing", *at)[0]["doubted"] == [], "the ledger says it is over"
        )
    lines = [record.getMessage() for record in caplog.records if "orders-0, offsets 0 to 39" in record.getMessage()]
    assert ["the previous member did not shut down cleanly" in line for line in lines] == [True, False]
    ledger = Ledger(client, "billing")
    ledger.refresh()
    assert (ledger.opened, ledger.hands, list(ledger.records())) == ({}, {}, [])


def put_letters(client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str], count: int) -> None:
    """Dead letters, as a member whose handler always fails writes them."""
    (place / "shop.py").write_text("def handle(record):\n    raise ValueError(record.value.decode())\n")
    client.produce("orders", 0, [b"%d" % n for n in range(40, count)])
    with Member(broker, place):
        wait_until(
            lambda: (
                len(said(capsys, "letters", "list", "billing", "-b", broker.bootstrap_servers)) == count
                if "dlq.billing.orders" in client.topics()
                else False
            ),
            TIMEOUT_S,
            "all are dead",
            0.5,
        )


def test_letters_are_resolved_by_record_and_by_day(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_letters(client, broker, place, capsys, 200)
    at = ("-b", broker.bootstrap_servers)
    (report,) = said(capsys, "letters", "resolve", "billing", "orders-0-0", *at)
    (first,) = said(capsys, "letters", "list", "billing", "--first", "1", *at)
    starts = {"dlq.billing.orders-0": int(str(first["letter"]).rpartition("-")[2])}
    assert report == {"letters": 1, "records": ["orders-0-0"], "left": 199, "starts": starts}
    assert first["record"] == "orders-0-1"
    (again,) = said(capsys, "letters", "resolve", "billing", "orders-0-0", *at)
    assert again == {**report, "letters": 0, "records": []}
    (status,) = said(capsys, "failures", "status", "billing", *at)
    assert status["states"] == {"dead": 199, "resolved": 1}
    assert main(["letters", "resolve", "billing", "orders-0-1", *at]) == 0
    assert "resolved 1 dead letters of 1 records; 198 dead letters are left" in capsys.readouterr().out
    assert len(said(capsys, "letters", "list", "billing", *at)) == 198
    for day in {str(row["day"]) for row in said(capsys, "letters", "list", "billing", *at)}:
        said(capsys, "letters", "resolve", "billing", day, *at)
    assert said(capsys, "letters", "list", "billing", *at) == []
    assert said(capsys, "failures", "status", "billing", *at)[0]["states"] == {"resolved": 200}
    assert client.start_offset("dlq.billing.orders", 0) == client.end_offset("dlq.billing.orders", 0)


@pytest.mark.slow
def test_a_thousand_letters_of_a_day_are_kept_until_each_is_resolved(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention and compaction run all the while; letters have the day alone as their key."""
    (place / "billing.toml").write_text('letter_key = "date"\n' + POLICY)
    topic = "dlq.billing.orders"
    often = {"log_cleaner_backoff_ms": 50, "log_retention_check_interval_ms": 50, "log_retention_ms": 1}
    with small_broker(**often) as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 1, configs={"retention.ms": "-1"})
        client.produce("orders", 0, [b"%d" % n for n in range(40)])
        put_letters(client, broker, place, capsys, 1000)
        client.admin.alter_topic_configs(topic, {"segment.ms": "1"})
        client.admin.create_topic("watched", 1, configs={"segment.ms": "1"})

        def retention_has_run() -> bool:
            client.produce("watched", 0, [b"x"])
            return client.start_offset("watched", 0) > 5

        wait_until(retention_has_run, TIMEOUT_S, "retention and compaction have come by", 0.05)
        at = ("-b", broker.bootstrap_servers)
        listed = said(capsys, "letters", "list", "billing", *at)
        assert len(listed) == 1000
        assert {record.key for record in records(client, topic)} == {str(row["day"]).encode() for row in listed}
        for row in listed[:3]:
            said(capsys, "letters", "resolve", "billing", str(row["record"]), *at)
        left = said(capsys, "letters", "list", "billing", *at)
        assert left == listed[3:]
        assert client.start_offset(topic, 0) == int(str(left[0]["letter"]).rpartition("-")[2])
        for day in {str(row["day"]) for row in left}:
            said(capsys, "letters", "resolve", "billing", day, *at)
        assert said(capsys, "letters", "list", "billing", *at) == []


def test_what_is_too_large_for_its_letter_is_shown_and_sent_back_from_where_it_stands(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that hardly fits into its topic, and an error that alone would not."""
    size = 1_000_000
    limit = {"max.message.bytes": str(size)}
    client.admin.create_topic("big", 1, configs=limit)
    client.admin.create_topic("dlq.billing.big", 1, configs={**DEAD_LETTER_SETTINGS, **limit})
    value = b"x" * (size - 10 - BATCH_OVERHEAD)
    client.produce("big", 0, [value])

    def handle(_: Message) -> None:
        raise ValueError("y" * size)

    policy = Policy(group="billing", topics=["big"], strategy=RetryTopics(["1 s"]), fatal=[ValueError])
    play(broker.bootstrap_servers, policy, handle, 1)
    at = ("-b", broker.bootstrap_servers)
    (letter,) = records(client, "dlq.billing.big")
    assert (letter.value, dict(letter.headers)["dlq.truncated"]) == (None, b"value")
    (row,) = said(capsys, "letters", "show", "billing", "big-0-0", *at)
    assert row["value"] == value.decode()
    assert said(capsys, "letters", "redrive", "billing", "--yes", *at) == [{"sent": 1, "too_often": 0}]
    (back,) = records(client, "retry.billing.big.0s")
    assert (back.value, "dlq.truncated" in dict(back.headers)) == (value, False)


def test_a_letter_whose_transaction_is_open_is_not_given_up_with_those_before_it(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "dlq.billing.orders"
    put_letters(client, broker, place, capsys, 40)
    at = ("-b", broker.bootstrap_servers)
    (row,) = said(capsys, "letters", "list", "billing", "--first", "1", *at)
    said(capsys, "letters", "resolve", "billing", str(row["day"]), *at)
    assert said(capsys, "letters", "list", "billing", *at) == []
    headers = (("dlq.topic", b"orders"), ("dlq.partition", b"0"), ("dlq.offset", b"99"), ("dlq.group", b"billing"))
    with client.twin() as writing, client.twin() as resolving, writing.producer(transactional_id="w") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, 0, [Record(-1, -1, b"k", b"99", headers)])
        producer.flush()
        box = LetterBox(resolving, "billing")
        resolver = threading.Thread(target=box.resolve, args=("orders-0-0", "somebody"))
        ahead = client.end_offset(topic, 0)
        resolver.start()
        wait_until(lambda: client.end_offset(topic, 0) > ahead or not resolver.is_alive(), TIMEOUT_S, "the marker")
        producer.commit_transaction()
        resolver.join()
    assert [row["record"] for row in said(capsys, "letters", "list", "billing", *at)] == ["orders-0-99"]


def test_letters_in_a_compacted_topic_are_kept_one_by_one_and_resolved_by_tombstones(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "dlq.billing.orders"
    (place / "billing.toml").write_text('cleanup = "compact"\n' + POLICY)
    with small_broker(log_cleaner_backoff_ms=50) as broker, Client(broker.bootstrap_servers) as client:
        for name in ("orders", "done"):
            client.admin.create_topic(name, 1)
        client.produce("orders", 0, [Record(-1, -1, b"k", b"%d" % n) for n in range(40)])
        put_letters(client, broker, place, capsys, 60)
        at = ("-b", broker.bootstrap_servers)
        client.admin.alter_topic_configs(topic, {"min.cleanable.dirty.ratio": "0.0001", "segment.ms": "200"})
        (row,) = said(capsys, "letters", "show", "billing", "orders-0-7", *at)
        assert (row["key"], row["value"], row["state"]) == ("k", "7", "dead")
        assert said(capsys, "letters", "resolve", "billing", "orders-0-7", *at) == [
            {"letters": 1, "records": ["orders-0-7"], "left": 59, "starts": {f"{topic}-0": 0}}
        ]

        def is_compacted() -> bool:
            client.produce(topic, 0, [Record(-1, -1, b"another segment", b"")])
            return b"7" not in {record.value for record in records(client, topic)}

        assert b"7" in {record.value for record in records(client, topic)}
        wait_until(is_compacted, TIMEOUT_S, "the topic is compacted", 0.2)
        found = said(capsys, "letters", "list", "billing", *at)
        assert len(found) == 59
        assert said(capsys, "letters", "redrive", "billing", "--yes", "--first", "1", *at) == [
            {"sent": 1, "too_often": 0}
        ]
        (back,) = records(client, "retry.billing.orders.0s")
        assert (back.key, back.value) == (b"k", b"0")
        for day in {str(row["day"]) for row in found}:
            said(capsys, "letters", "resolve", "billing", day, *at)
        assert said(capsys, "letters", "list", "billing", *at) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kills"), [(1200, 5), pytest.param(10_000, 20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_a_redrive_that_is_killed_sends_each_letter_once(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str], count: int, kills: int
) -> None:
    put_letters(client, broker, place, capsys, count)
    words = [sys.executable, "-m", "kafkalite", "letters", "redrive", "billing", "--yes"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    topic = "retry.billing.orders.0s"
    chance = random.Random(kills)
    for kill in range(kills):
        process = subprocess.Popen([*words, "-b", broker.bootstrap_servers], env=environment, stdout=subprocess.DEVNULL)
        there = client.end_offset(topic, 0)
        blind = kill % 4 == 3  # at any moment; the others when it has begun to write
        while (
            process.poll() is None and client.end_offset(topic, 0) <= there and not (blind and chance.random() < 1e-3)
        ):
            pass
        process.kill()
        process.wait()
        capsys.readouterr()
        print(f"killed {kill + 1} times: {client.end_offset(topic, 0)} records and markers")
    subprocess.run([*words, "-b", broker.bootstrap_servers], env=environment, check=True, timeout=TIMEOUT_S)
    sent = Counter(record.value for record in records(client, topic))
    assert sent == Counter(b"%d" % n for n in range(count))
    assert client.end_offset("orders", 0) == count


def test_a_redrive_ends_what_one_that_was_killed_left_open(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be as long before the ledger can be read as a transaction may be open."""
    put_letters(client, broker, place, capsys, 40)
    with (
        client.twin() as other,
        other.producer(transactional_id="kafkalite-redrive-billing", transaction_timeout_s=600) as killed,
    ):
        killed.init_transactions()
        killed.begin_transaction()
        killed.send(ledger_name("billing"), 0, [Record(-1, -1, b"orders-0-0", None)])
        killed.flush()
        words = ("letters", "redrive", "billing", "--yes", "-b", broker.bootstrap_servers)
        assert said(capsys, *words) == [{"sent": 40, "too_often": 0}]


def test_an_edited_letter_goes_back_with_the_hash_of_what_it_was(
    client: Client,
    broker: Broker,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_letters(client, broker, place, capsys, 40)
    editor = place / "editor"
    editor.write_text("#!/bin/sh\nsed -i s/7/x/ $1\n")
    editor.chmod(0o755)
    words = ("letters", "redrive", "billing", "--yes", "--edit", "-b", broker.bootstrap_servers)
    monkeypatch.setenv("EDITOR", "false")
    assert main([*words]) == 1
    assert ": the editor false exited with status 1" in capsys.readouterr().err
    assert records(client, "retry.billing.orders.0s") == []
    monkeypatch.setenv("EDITOR", str(editor))
    assert said(capsys, *words) == [{"sent": 40, "too_often": 0}]
    found = {record.value: dict(record.headers) for record in records(client, "retry.billing.orders.0s")}
    assert found[b"1x"]["dlq.edited"].decode() == hashlib.sha256(b"17").hexdigest()
    assert "dlq.edited" not in found[b"16"]
    assert b"17" not in found


def test_letters_are_patched_on_their_way_back(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_letters(client, broker, place, capsys, 40)
    at = ("-b", broker.bootstrap_servers)
    counted = said(capsys, "letters", "count", "billing", *at)
    assert [(row["exception"], row["letters"]) for row in counted] == [("ValueError", 40)]
    (place / "patch.json").write_text(
        '[{"op": "test", "path": "", "value": 7}, {"op": "replace", "path": "", "value": 8}]'
    )
    words = ("letters", "redrive", "billing", "--yes", *at, "--patch", str(place / "patch.json"))
    assert main([*words]) == 1  # the first letter is not 7: nothing is sent
    assert "the test of '' failed: it is not 7" in capsys.readouterr().err
    assert records(client, "retry.billing.orders.0s") == []
    (place / "patch.json").write_text('[{"op": "replace", "path": "", "value": {"mended": true}}]')
    assert said(capsys, *words, "--first", "1") == [{"sent": 1, "too_often": 0}]
    (place / "edits_here.py").write_text(
        "def louder(record):\n    return record.value + b'!'\n"
        "def rekey(record):\n    return record._replace(key=b'other')\n"
        "def label(record):\n    return record._replace(headers=[*record.headers, ('by', b'me')])\n"
        "def same(record):\n    return record._replace(headers=list(record.headers))\n"
    )
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("letters", "redrive", "billing", "--yes", *at, "--edit-with", "edits_here:louder")
    assert said(capsys, *words, "--first", "1") == [{"sent": 1, "too_often": 0}]
    found = [record.value for record in records(client, "retry.billing.orders.0s")]
    assert found == [b'{"mended":true}', b"1!"]
    for edit in ("rekey", "label", "same"):
        assert said(capsys, *words[:-1], f"edits_here:{edit}", "--first", "1") == [{"sent": 1, "too_often": 0}]
    rekeyed, labelled, same = records(client, "retry.billing.orders.0s")[2:]
    assert [(record.key, record.value) for record in (rekeyed, labelled, same)] == [
        (b"other", b"2"),
        (b"k", b"3"),
        (b"k", b"4"),
    ]
    assert [dict(record.headers).get("by") for record in (rekeyed, labelled, same)] == [None, b"me", None]
    assert [dict(record.headers).get("dlq.edited") for record in (rekeyed, labelled, same)] == [
        hashlib.sha256(b"2").hexdigest().encode(),
        hashlib.sha256(b"3").hexdigest().encode(),
        None,
    ]
    assert main([*words, "--edit"]) == 2
    assert "cannot be used together" in capsys.readouterr().err


@pytest.mark.slow
def test_a_record_is_stepped_over_when_somebody_says_so(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = POLICY.replace('"RetryTopics"', '"RetryForever"').replace('delays = ["1 s"]', 'backoff = "100 ms"')
    (place / "billing.toml").write_text(text.replace('"ValueError"', '"LookupError"'))
    (place / "mended").touch()
    (place / "shop.py").write_text(
        HANDLER.replace("number == 13 and not", "number == 14 and not") + "    assert number != 13"
    )
    words = ("letters", "skip", "billing", "orders-0-13", "-b", broker.bootstrap_servers)

    def committed() -> int:
        return sum(row.offset for row in client.groups.committed("billing").values())

    with Member(broker, place):
        wait_until(lambda: committed() == 13, TIMEOUT_S, "record 13 is tried for ever", 0.1)
        assert main([*words, "--yes"]) == 1
        assert "has members" in capsys.readouterr().err

    def is_empty() -> bool:
        return not client.groups.describe("billing").members

    wait_until(is_empty, TIMEOUT_S, "the member has left", 0.1)
    assert main([*words]) == 0
    assert "would skip orders-0-13, which is not handled yet" in capsys.readouterr().out
    assert main([*words, "--yes"]) == 0
    with Member(broker, place):
        wait_until(lambda: committed() == 40, TIMEOUT_S, "all others are handled", 0.1)
    assert done(client) == Counter(b"%d" % n for n in range(40) if n != 13)
    wait_until(is_empty, TIMEOUT_S, "the member has left", 0.1)
    for record, why in (("orders-0-13", "is already skipped"), ("orders-0-3", "was already processed")):
        assert main(["letters", "skip", "billing", record, *words[4:]]) == 1
        assert why in capsys.readouterr().err


def test_a_key_is_held_for_its_dead_record_until_that_is_processed_or_resolved(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "billing.toml").write_text('order = "key"\nafter_dead = "hold"\n' + POLICY)
    (place / "shop.py").write_text(
        "import pathlib\n"
        "def handle(record, transaction):\n"
        "    if record.value == b'20' or (record.value == b'7' and not pathlib.Path('mended').exists()):\n"
        "        raise ValueError('no')\n"
        "    transaction.send('done', record.value, partition=0)\n"
    )
    client.produce("orders", 0, [Record(-1, -1, b"another key", b"40")])
    at = ("-b", broker.bootstrap_servers)

    held_by: list[object] = []

    def status() -> dict[str, int]:
        (found,) = said(capsys, "failures", "status", "billing", *at)
        states = found["states"]
        assert isinstance(states, dict)
        held_by.append(found["held_by"])
        return states

    with Member(broker, place):
        wait_until(lambda: 40 in numbers(client, "done"), TIMEOUT_S, "the other key is done", 0.2)
        wait_until(lambda: status() == {"dead": 1, "parked": 32}, TIMEOUT_S, "all others are parked", 0.2)
        assert held_by[-1] == ["orders-0-7"]
    with Member(broker, place):  # who comes after it holds the key, too
        (place / "mended").touch()
        assert said(capsys, "letters", "redrive", "billing", "--yes", *at) == [{"sent": 1, "too_often": 0}]
        wait_until(lambda: status() == {"dead": 1, "parked": 19}, TIMEOUT_S, "it goes on up to the next", 0.2)
        assert [number for number in numbers(client, "done") if number != 40] == list(range(20))
        said(capsys, "letters", "resolve", "billing", "orders-0-20", *at)
        wait_until(lambda: status() == {"resolved": 1}, TIMEOUT_S, "it goes on", 0.2)
        assert held_by[-1] == []
    assert [number for number in numbers(client, "done") if number != 40] == [*range(20), *range(21, 40)]
    assert said(capsys, "letters", "list", "billing", *at) == []


def test_a_tombstone_is_refused_where_good_data_would_go_with_it(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    client.admin.create_topic("customers", 1)
    rows = [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4")]
    client.produce("customers", 0, [Record(-1, -1, key, value) for key, value in rows])
    client.admin.alter_topic_configs("customers", {"cleanup.policy": "compact"})  # from then on records need a key
    at = ("-b", broker.bootstrap_servers)
    for record, why in (
        ("orders-0-1", "is not compacted"),
        ("customers-0-0", "offset 3 has a newer record with the same key"),
        ("customers-0-2", "has no key"),
        ("customers-0-9", "does not exist"),
    ):
        assert main(["letters", "tombstone", record, "--yes", *at]) == 1
        assert why in capsys.readouterr().err
    assert main(["letters", "tombstone", "customers-0-1", *at]) == 0
    assert client.end_offset("customers", 0) == 4
    assert main(["letters", "tombstone", "customers-0-1", "--yes", *at]) == 0
    assert client.end_offset("customers", 0) == 5


def test_check_says_in_a_sentence_each_what_is_wrong(
    client: Client, broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("letters", "check", "--policy", str(place / "billing.toml"), "-b", broker.bootstrap_servers)
    assert all(
        "is missing; create it: kafkalite topics create" in str(line) for line in said(capsys, *words, status=1)[0]
    )
    with Member(broker, place):
        wait_until(lambda: "kafkalite.failures.billing" in client.topics(), TIMEOUT_S, "topics are made", 0.1)
    assert said(capsys, *words) == [[]]
    client.admin.add_partitions("orders", 2)
    client.admin.alter_topic_configs(
        "retry.billing.orders.1s", {"retention.ms": "1000", "message.timestamp.type": "CreateTime"}
    )
    client.admin.alter_topic_configs(
        "dlq.billing.orders", {"max.message.bytes": "1000", "cleanup.policy": "compact", "retention.ms": "1000"}
    )
    (found,) = said(capsys, *words, status=1)
    text = "\n".join(map(str, found))
    for part in (
        "retry.billing.orders.1s has 1 partitions but needs 2",
        "retry.billing.orders.1s has retention.ms=1000",
        "retry.billing.orders.1s has message.timestamp.type=CreateTime",
        "dlq.billing.orders has max.message.bytes=1000",
        "dlq.billing.orders has cleanup.policy=compact",
        "dlq.billing.orders has retention.ms=1000",
    ):
        assert part in text


@pytest.mark.parametrize(
    "headers",
    [
        (
            ("kafka_dlt-original-topic", b"orders"),
            ("kafka_dlt-original-partition", struct.pack(">i", 0)),
            ("kafka_dlt-original-offset", struct.pack(">q", 5)),
            ("kafka_dlt-exception-fqcn", b"java.lang.X"),
        ),
        (
            ("kafka_original-topic", b"orders"),
            ("kafka_original-partition", struct.pack(">i", 0)),
            ("kafka_original-offset", struct.pack(">q", 5)),
            ("kafka_exception-fqcn", b"java.lang.X"),
            ("retry_topic-attempts", struct.pack(">i", 3)),
        ),
        (
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.partition", b"0"),
            ("__connect.errors.offset", b"5"),
            ("__connect.errors.exception.class.name", b"java.lang.X"),
        ),
        (
            ("__streams.errors.topic", b"orders"),
            ("__streams.errors.partition", b"0"),
            ("__streams.errors.offset", b"5"),
            ("__streams.errors.exception", b"java.lang.X"),
        ),
        (
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"5"),
            ("__dlq.errors.message", b"java.lang.X"),
        ),
    ],
    ids=["spring", "spring-retry", "connect", "streams", "share"],
)
def test_letters_of_others_are_listed_and_go_back_to_their_topic(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str], headers: tuple[tuple[str, bytes], ...]
) -> None:
    client.admin.create_topic("theirs", 1)
    share = headers[0][0].startswith("__dlq")
    own = () if share else (("trace", b"7"),)
    client.produce("theirs", 0, [Record(-1, -1, b"k", None if share else b"5", (*own, *headers))])
    found = found_letter((*own, *headers))
    assert found is not None
    assert found.headers == own
    at = ("--topic", "theirs", "-b", broker.bootstrap_servers)
    (row,) = said(capsys, "letters", "list", "anybody", *at)
    assert (row["record"], row["exception"] or row["error"]) == ("orders-0-5", "java.lang.X")
    for sent in (1, 0):
        assert said(capsys, "letters", "redrive", "anybody", "--yes", *at) == [{"sent": sent, "too_often": 0}]
    chunks = client.read("orders", 0, 40)
    (back,) = [record for chunk in chunks for record in chunk.columns.records()]
    assert (back.value, back.headers) == (b"5", (*own, ("dlq.redriven", b"1")))


@pytest.mark.parametrize(
    ("words", "text", "said_so"),
    [
        (["shop:nothing"], POLICY, "has no attribute 'nothing'"),
        (["shop"], POLICY, "is not MODULE:NAME"),
        (["shop:handle"], "group = 1", "key topics is missing in the policy"),
        (["shop:handle"], "group", "billing.toml"),
        (["shop:handle"], POLICY.replace("RetryTopics", "Magic"), "a strategy must be a table with kind"),
        (["shop:handle"], POLICY.replace("ValueError", "Nope"), "is not an exception class"),
        (["shop:handle"], "colour = 1\n" + POLICY, "the policy has no colour; expected after,"),
        (["shop:handle", "--alarm-url", "ftp://x"], POLICY, "is not an http"),
    ],
)
def test_what_cannot_begin_is_one_sentence(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    text: str,
    said_so: str,
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("shop", None)
    (place / "billing.toml").write_text(text)
    assert main(["failures", "run", *words, "--policy", "billing.toml"]) == 2
    error = capsys.readouterr().err
    assert said_so in error
    assert len(error.splitlines()) == 1


def test_an_alarm_is_posted_again_with_the_same_id() -> None:
    bodies: list[dict[str, object]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if len(bodies) == 1:
                self.wfile.write(b"this is no HTTP\r\n\r\n")
                return
            self.send_response(500 if len(bodies) == 2 else 204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        sender = AlarmSender(f"http://127.0.0.1:{server.server_port}/alarms", "billing")
        sender.send(Alarm("loss", "too many", {"ratio": 0.2}))
        deadline = time.monotonic() + TIMEOUT_S
        while len(bodies) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        sender.close()
        server.shutdown()
        thread.join()
    assert len({body["id"] for body in bodies}) == 1
    assert [(body["group"], body["kind"], body["reason"]) for body in bodies] == [("billing", "loss", "too many")] * 3
