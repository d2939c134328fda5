"""`kafkalite audit --follow`: all kinds of stages, verdicts once windows are closed, changes later, its own death."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from kafkalite.audit import AuditedGroupReader, AuditedProducer
from kafkalite.audit.fields import MarkFields
from kafkalite.audit.following import Away, Closed, Follower, Wrong
from kafkalite.audit.run import Plan
from kafkalite.audit.saved import StateError, load, save
from kafkalite.avro.client import RegistryClient
from kafkalite.broker import Broker
from kafkalite.broker.backup import back_up
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.client.errors import LogTruncated
from kafkalite.load.compaction import compact
from kafkalite.mirror import Mirror, TopicFilter
from kafkalite.wire.record.columns import Record
from tests.kit.harness.audited_load import load_into
from tests.kit.harness.samples import sample
from tests.kit.harness.scrape import Scrape, ask
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until
from tests.kit.processes.restored import put_back

pytestmark = pytest.mark.integration

MINUTE = 60_000
STAMP = 1_700_000_040_000
"""A minute begins."""
COLUMNS = ["topic", "partition", "offset", "timestamp", "headers"]
ABOUT: dict[str, Any] = {"live": "here"}


@pytest.fixture
def live() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}) as running:
        yield running


@pytest.fixture
def offline() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}) as running:
        yield running


def records(first: int, end: int) -> list[Record]:
    """Ten a second."""
    return [Record(-1, STAMP + 100 * at, None, b"v%d" % at) for at in range(first, end)]


def copy(source: Client, target: Client, topic: str) -> None:
    mirror = Mirror(source, target, name="all", topics=TopicFilter(topic))
    mirror.run(threading.Event(), to_end=True)
    mirror.close()
    wait_until(lambda: target.end_offset(topic, 0, isolation=1) == target.end_offset(topic, 0), 60, "it is committed")


def read_all(client: Client, group: str, topic: str, count: int) -> None:
    with AuditedGroupReader(client, group, topic, reset="earliest") as reader:
        taken = 0
        while taken < count:
            taken += sum(len(chunk.columns) for chunk in reader.poll(1.0))
        reader.commit()


class Following:
    """A follower whose clock the test moves, and what it told."""

    def __init__(self, plan: Plan, now_ms: int, *, recounts: bool = False) -> None:
        self.now_ms = now_ms
        self.events: list[Any] = []
        self.follower = Follower(plan, self.events.append, recounts=recounts, now_ms=lambda: self.now_ms)

    def round(self, now_ms: int | None = None) -> list[Any]:
        """The events of one round."""
        self.now_ms = self.now_ms if now_ms is None else now_ms
        self.events.clear()
        self.follower.round(threading.Event())
        return list(self.events)


def test_a_registry_that_does_not_respond_is_reported_once_and_the_audit_goes_on() -> None:
    with (
        Broker({"flush.on.acks.all": False}) as broker,
        Client(broker.bootstrap_servers) as client,
        RegistryClient(f"http://127.0.0.1:{free_port()}", retry_timeout_s=0) as registry,
    ):
        client.admin.create_topic("framed", 1)
        with AuditedProducer(client, server="web1") as producer:
            producer.send("framed", 0, records(0, 10))
        client.produce("framed", 0, [b"\0" + (7).to_bytes(4, "big") + b"x"])
        following = Following(Plan(client, fields=MarkFields({None: "mark"}, registry=registry)), STAMP)
        (away,) = following.round()
        assert (away.stage, "Connection refused" in away.reason) == ("live", True), away
        assert following.round() == []


def test_all_stages_at_once_are_complete_and_one_lost_message_is_named_and_comes_late(
    live: Broker, offline: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, state = tmp_path / "loaded", tmp_path / "state"
    with Client(live.bootstrap_servers) as source, Client(offline.bootstrap_servers) as target:
        source.admin.create_topic("logs", 1)
        plan = Plan(source, target, "all", {"loaded": str(loaded)}, consumers=("billing",))
        following = Following(plan, STAMP)
        with AuditedProducer(source, server="web1") as producer:
            producer.send("logs", 0, records(0, 600))
            first = following.round()
            assert {event.stage for event in first if isinstance(event, Away)} >= {"counts"}
            producer.flush()
            copy(source, target, "logs")
            read_all(source, "billing", "logs", 600)
            load_into(loaded, target, "logs", None, COLUMNS)
            assert [type(event) for event in following.round(STAMP + MINUTE)] == [Away]  # the counts are there
            (closed,) = following.round(STAMP + 3 * MINUTE)
            assert (closed.expected, closed.wrong) == (600, [])
            assert closed.stages == ["live", "mirror", "billing", "offline", "loaded"]
            brokers = ["--live", live.bootstrap_servers, "--offline", offline.bootstrap_servers, "--mirror", "all"]
            stages = ["--loaded", str(loaded), "--consumer", "billing", "--grace", "0"]
            assert main(["audit", *brokers, *stages, "--json", "-q"]) == 0
            assert list(json.loads(capsys.readouterr().out)["stages"]) == closed.stages
            # The second minute: the mirror's copy loses one, which comes an hour before the window is forgotten.
            producer.send("logs", 0, records(600, 1200))
            producer.flush()
        (chunk,) = list(source.read("logs", 0, 600))
        target.produce("logs", 0, chunk.columns.chosen(np.delete(np.arange(600), 77)))
        events = following.round(STAMP + 4 * MINUTE)
        wrong = {event.difference.stage: event for event in events if isinstance(event, Wrong)}
        assert {stage: event.difference.missing for stage, event in wrong.items()} == {
            "mirror": 600,  # it has not copied these itself
            "billing": 600,
            "offline": 1,
            "loaded": 600,
        }
        assert wrong["offline"].missing == [(677, 678)]
        assert [event.wrong for event in events if isinstance(event, Closed)] == [
            ["mirror", "billing", "offline", "loaded"]
        ]
        assert following.round() == []
        save(following.follower, state, ABOUT)
        again = Following(plan, STAMP + 4 * MINUTE)
        assert load(again.follower, state, ABOUT)
        assert again.round() == []  # nothing is counted, or told, twice
        assert again.follower.stages["live"].count.record_count == 1200
        target.produce("logs", 0, chunk.columns.chosen(np.array([77])))
        read_all(source, "billing", "logs", 600)
        load_into(loaded, target, "logs", list(range(600, 1200)), COLUMNS)
        compact(loaded)
        events = again.round(STAMP + 5 * MINUTE)
        right = {event.difference.stage: event for event in events if isinstance(event, Wrong)}
        assert {stage: (row.difference.missing, row.before) for stage, row in right.items()} == {
            "billing": (0, (600, 0, 0)),
            "offline": (0, (1, 0, 0)),
            "loaded": (0, (600, 0, 0)),
        }
        assert again.follower.stages["loaded"].count.record_count == 1200  # compacted rows were counted once
        target.produce("logs", 0, chunk.columns.chosen(np.array([3])))
        (event,) = [one for one in again.round() if isinstance(one, Wrong)]
        assert (event.difference.duplicated, event.duplicated) == (1, [603])
        with pytest.raises(StateError, match="belongs to another audit: its live is here, not there"):
            load(Following(plan, STAMP).follower, state, {"live": "there"})
        for raw in (b"", state.read_bytes()[:-100], b"PK\x03\x04" + bytes(100)):
            state.write_bytes(raw)
            with pytest.raises(StateError, match="is damaged"):
                load(Following(plan, STAMP).follower, state, ABOUT)


def test_memory_is_what_is_kept_however_long_it_goes_on(live: Broker) -> None:
    with Client(live.bootstrap_servers) as client:
        client.admin.create_topic("long", 1)
        following = Following(Plan(client), STAMP)
        sizes = []
        for minute in range(0, 200, 10):
            with AuditedProducer(client, server="web1") as producer:
                producer.send("long", 0, records(600 * minute, 600 * (minute + 10)))
            events = following.round(STAMP + (minute + 12) * MINUTE)
            assert [event.wrong for event in events if isinstance(event, Closed)] == [[]] * len(events)
            count, reported = following.follower.stages["live"].count, following.follower.reported
            sizes.append((len(count.windows), len(count._pages), len(reported._known), len(following.follower.closed)))
        assert max(sizes[8:]) == max(sizes[12:])
        assert sizes[-1][0] <= 72
        assert following.follower.totals == {"complete": 200, "different": 0}
        assert following.follower.not_alive() == []
        following.follower._beat -= 1000  # a round that began that long ago, and makes no progress
        assert re.fullmatch("no progress for 100[0-9] s", following.follower.not_alive()[0])


# --- as a process -----------------------------------------------------------------------------------------------------


class Auditing:
    """A separate process of `kafkalite audit --follow`."""

    def __init__(self, folder: Path, live: str, *options: str) -> None:
        self.out, self.err = folder / "out", folder / "err"
        words = ["--live", live, "--follow", "--json", "--interval", "0.1", "--grace", "0", *options]
        with self.out.open("ab") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", "audit", *words], stdout=out, stderr=err, env={**os.environ}
            )

    def events(self, kind: str) -> list[Any]:
        """Of whole lines."""
        lines = self.out.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if event["event"] == kind]

    def url(self) -> str | None:
        lines = [line for line in self.err.read_text().splitlines() if "metrics at " in line]
        return lines[-1].rpartition(" ")[2].removesuffix("/metrics") if lines else None

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def rounds(auditing: Auditing) -> float:
    """How often it has judged."""
    url = auditing.url()
    return Scrape.of(url)("kafkalite_audit_rounds_total") if url is not None else 0


def send(broker: BrokerProcess, count: int) -> None:
    """Send `count` messages with the current time, in windows of a tenth of a second."""
    with Client(broker.bootstrap) as client, AuditedProducer(client, server="web1", window_s=0.1) as producer:
        with contextlib.suppress(Exception):
            client.admin.create_topic("logs", 1)
        producer.send("logs", 0, [b"v"] * count)


@pytest.mark.slow
def test_it_outlives_brokers_that_are_away_and_its_own_death_and_counts_nothing_twice(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = ["--state", str(state), "--metrics", "127.0.0.1:0"]

    def total(auditing: Auditing) -> Callable[[], int]:
        """Return the messages of windows reported as complete; a repeated line is the same window."""
        return lambda: sum({row["window_ms"]: row["expected"] for row in auditing.events("complete")}.values())

    with BrokerProcess(tmp_path / "live", {"flush.on.acks.all": "false"}) as broker:
        send(broker, 100)
        with Auditing(tmp_path, broker.bootstrap, *options) as auditing:
            wait_until(lambda: total(auditing)() == 100, 120, "the first hundred")
            url = wait_until(auditing.url, 60, "the page of metrics")
            assert ask(url, "/health/ready").status == 200
            seen = Scrape.of(url)
            assert seen("kafkalite_audit_records_total", stage="live") == 100
            assert seen("kafkalite_audit_windows", verdict="complete") >= 1
            assert seen("kafkalite_audit_stage_up", stage="live") == 1
            broker.kill()
            wait_until(lambda: auditing.events("away"), 120, "it says that the broker is away")
            assert ask(url, "/health/ready").status == 503
            assert ask(url, "/health/live").status == 200
            broker.start()
            send(broker, 50)
            wait_until(lambda: total(auditing)() == 150, 120, "the broker is back")
            wait_until(lambda: ask(url, "/health/ready").status == 200, 60, "it is ready again")
            auditing.process.kill()
            auditing.process.wait()
        send(broker, 25)
        with Auditing(tmp_path, broker.bootstrap, *options) as auditing:
            wait_until(lambda: total(auditing)() == 175, 120, "what came meanwhile")
            url = wait_until(auditing.url, 60, "the page of metrics")
            wait_until(lambda: Scrape.of(url)("kafkalite_audit_records_total", stage="live") == 175, 60, "each once")
            late = [
                event
                for event in auditing.events("wrong")
                if not event["duplicated_numbers"] and event["duplicated"] == 0
            ]
            assert auditing.events("wrong") == late, (
                "counted twice; what came late on a slow machine was told and taken back"
            )
            began = time.monotonic()
            assert auditing.end() == 0
            assert time.monotonic() - began < 60
        told = len(auditing.events("complete"))
        with Auditing(tmp_path, broker.bootstrap, *options) as auditing:
            wait_until(lambda: rounds(auditing) >= 3, 60, "three rounds")
            assert auditing.end() == 0
        assert len(auditing.events("complete")) == told  # a clean end told and saved all


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--since", "-1h"], "--since and --until cannot be used with --follow"),
        (["--stage-grace", "loaded=5"], "unknown stage 'loaded'; expected one of live"),
        (["--stage-grace", "live=x"], "not a positive number of seconds"),
        (["--state", "/no/such/folder/state"], "No such file"),
        (["--metrics", "0.0.0.0:0"], "reachable from other machines"),
        (["--metrics-users", "x"], "requires --metrics"),
    ],
)
def test_flags_that_cannot_be(options: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--live", "127.0.0.1:1", "--follow", *options]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--state", "x"], ["--metrics", "127.0.0.1:0"], ["--stage-grace", "live=1"]])
def test_flags_of_following_alone(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--live", "127.0.0.1:1", *options]) == 2
    assert "requires --follow" in capsys.readouterr().err


@pytest.mark.slow
def test_two_audits_do_not_share_a_state(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "live") as broker:
        state = ["--state", str(tmp_path / "state")]
        with Auditing(tmp_path, broker.bootstrap, *state) as auditing:
            wait_until(lambda: auditing.events("away"), 60, "it runs")
            second = subprocess.run(
                [sys.executable, "-m", "kafkalite", "audit", "--live", broker.bootstrap, "--follow", *state],
                capture_output=True,
                text=True,
                check=False,
            )
            assert second.returncode == 2
            assert "in use by another audit" in second.stderr
            assert auditing.end() == 0


def send_stamped(bootstrap: str, server: str, first: int, end: int) -> None:
    with Client(bootstrap, retry_timeout_s=60) as client:
        if not client.partition_counts(["logs"]):
            client.admin.create_topic("logs", 1)
        with AuditedProducer(client, server=server) as producer:
            producer.send("logs", 0, records(first, end))


@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["epochs tell", "the same epoch"])
def test_a_log_that_was_restored_ends_the_audit_or_is_counted_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], killed: bool
) -> None:
    """Of 600 messages 200 are not in the backup; 300 of another server come after it was restored."""
    state, late = tmp_path / "state", STAMP + 4 * MINUTE
    with BrokerProcess(tmp_path / "broker") as broker:
        send_stamped(broker.bootstrap, "web1", 0, 400)
        back_up(str(broker.data_dir), str(tmp_path / "saved"))
        if killed:
            broker.kill()
            broker.start()
        send_stamped(broker.bootstrap, "web1b", 400, 600)
        with Client(broker.bootstrap, retry_timeout_s=60) as client:
            read_all(client, "billing", "logs", 600)
            following = Following(Plan(client, consumers=("billing",)), STAMP)
            events = following.round(late)
            assert [(event.expected, event.wrong) for event in events if isinstance(event, Closed)] == [(600, [])]
            save(following.follower, state, ABOUT)
        put_back(broker, tmp_path / "saved")
        send_stamped(broker.bootstrap, "web2", 0, 300)
        with Client(broker.bootstrap, retry_timeout_s=60) as client:
            plan = Plan(client, consumers=("billing",))
            again = Following(plan, STAMP)
            load(again.follower, state, ABOUT)
            with pytest.raises(
                LogTruncated, match=r"stage live: logs-0 .*use --on-data-loss recount to count the stage"
            ):
                again.round(late)
            recounting = Following(plan, STAMP, recounts=True)
            load(recounting.follower, state, ABOUT)
            events = recounting.round(late)
            wrong = {
                (event.difference.stage, event.difference.server): event.difference.missing
                for event in events
                if isinstance(event, Wrong)
            }
            assert wrong["live", "web1b"] == 200
            assert ("live", "web2") not in wrong
            assert ("live", "web1") not in wrong
            assert wrong["billing", "web1b"] == 200
            # Billing reports offsets: 200 of web2's are at the place of web1b's.
            assert wrong["billing", "web2"] == 100
            save(recounting.follower, state, ABOUT)
            settled = Following(plan, STAMP)
            load(settled.follower, state, ABOUT)
            assert settled.round(late) == []
    command = ["audit", "--live", "nobody:1", "--on-data-loss", "recount"]
    assert main(command) == 2
    assert "--on-data-loss requires --follow" in capfd.readouterr().err
