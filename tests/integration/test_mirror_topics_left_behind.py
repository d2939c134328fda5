"""A topic that the target refuses, or that the source does not give, is left behind; the others are copied."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client, TransactionAborted
from kafkalite.mirror import Mirror, MirrorStatus, TopicFilter
from kafkalite.mirror import states as mirror_states
from kafkalite.mirror.states import TopicStates
from tests.kit.harness.damaged_log import damage_second_batch, fill
from tests.kit.harness.failing_groups import small_broker
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port, wait_until

pytestmark = pytest.mark.integration

READY_S = 60
FAST = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}
Spoil = Callable[[Client, Client], object]


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(FAST) as running:
        yield running


@pytest.fixture
def clients(source: Broker, target: Broker) -> Iterator[tuple[Client, Client]]:
    with Client(source.bootstrap_servers) as one, Client(target.bootstrap_servers) as two:
        for name in ("good", "bad", "new.topic"):
            if one.partition_counts([name]):
                one.admin.delete_topic(name)
        one.admin.create_topic("good", 2)
        for partition in range(2):
            one.produce("good", partition, [b"g"] * 50)
        yield one, two


def copy(source: Broker, target: Broker, *options: str) -> int:
    both = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
    return main(["mirror", *both, "--name", "m", "-q", *options])


def status(target: Broker, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert main(["mirror", "status", "--to", target.bootstrap_servers, "--json", *options]) == 0
    return {row["topic"]: row for row in json.loads(capsys.readouterr().out)}


def count(client: Client, topic: str, partition: int = 0) -> int:
    if not client.partition_counts([topic]):
        return 0
    chunks = client.read(topic, partition, end=client.end_offset(topic, partition), isolation=1)
    return sum(len(chunk.columns) for chunk in chunks)


def too_large(one: Client, two: Client) -> None:
    two.admin.create_topic("bad", 1, configs={"max.message.bytes": "1000"})
    one.admin.create_topic("bad", 1)
    one.produce("bad", 0, [b"v" * 5000])


def without_keys(one: Client, two: Client) -> None:
    two.admin.create_topic("bad", 1, configs={"cleanup.policy": "compact"})
    one.admin.create_topic("bad", 1)
    one.produce("bad", 0, [b"v"])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (too_large, "MESSAGE_TOO_LARGE"),
        (without_keys, "INVALID_RECORD"),
    ],
)
def test_records_that_the_target_refuses_hold_up_their_topic_alone(
    source: Broker,
    target: Broker,
    clients: tuple[Client, Client],
    capsys: pytest.CaptureFixture[str],
    spoil: Spoil,
    why: str,
) -> None:
    spoil(*clients)
    assert copy(source, target, "-e", "--topics", "good|bad") == 1
    error = capsys.readouterr().err
    assert "topic bad cannot be copied now and is left behind: " in error
    assert why in error
    assert "these topics could not be copied and were left behind: bad" in error
    assert [count(clients[1], "good", partition) for partition in range(2)] == [50, 50]
    rows = status(target, capsys, "--from", source.bootstrap_servers, "--name", "m")
    assert (rows["good"]["state"], rows["good"]["lag"], rows["good"]["reason"]) == ("copied", 0, None)
    assert rows["bad"]["state"] == "left behind"
    assert why in str(rows["bad"]["reason"])
    assert rows["bad"]["lag"] == 1


@pytest.mark.parametrize("how", ["magic", "count"])
def test_records_before_damage_are_copied(
    tmp_path: Path, target: Broker, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    with small_broker(log_dirs=str(tmp_path)) as broker:
        fill(broker.bootstrap_servers, "bad")
    damage_second_batch(tmp_path, how, "bad")
    with small_broker(log_dirs=str(tmp_path)) as source:
        with Client(source.bootstrap_servers) as client:
            client.admin.create_topic("good", 1)
            client.produce("good", 0, [b"v"] * 10)
        for _ in range(2):
            assert copy(source, target, "-e", "--topics", "good|bad") == 1
            assert (
                "topic bad cannot be copied now and is left behind: bad-0: the broker reports a corrupt batch"
                in capsys.readouterr().err
            )
            with Client(target.bootstrap_servers) as client:
                assert (count(client, "good"), count(client, "bad")) == (10, 1000)
        row = status(target, capsys, "--from", source.bootstrap_servers, "--name", "m")["bad"]
        assert (row["state"], row["offsets"], row["lag"]) == ("left behind", {"0": 1000}, 2000)


def test_a_name_that_collides_with_a_topic_of_the_target(
    source: Broker, target: Broker, clients: tuple[Client, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    two.admin.create_topic("b_ad", 1)
    one.admin.create_topic("b.ad", 1)
    try:
        assert copy(source, target, "-e", "--topics", "good|b[.]ad") == 1
    finally:
        one.admin.delete_topic("b.ad")
    assert "topic b.ad cannot be copied now and is left behind: " in capsys.readouterr().err
    assert count(two, "good") == 50


def test_a_name_that_is_too_long_with_the_prefix(
    source: Broker, target: Broker, clients: tuple[Client, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    name = "x" * 245
    one.admin.create_topic(name, 1)
    try:
        assert copy(source, target, "-e", "--prefix", "one.two.", "--topics", "good|x+") == 1
    finally:
        one.admin.delete_topic(name)
    assert f"topic {name} cannot be copied now and is left behind: " in capsys.readouterr().err
    assert count(two, "one.two.good") == 50


def test_it_is_copied_once_the_target_takes_it(
    source: Broker, target: Broker, clients: tuple[Client, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    """While it is left behind, what comes of the others is copied, and few copies of it are begun in vain."""
    one, two = clients
    too_large(one, two)
    stop, told = threading.Event(), []
    with Client(source.bootstrap_servers) as from_, Client(target.bootstrap_servers) as to:
        topics = TopicFilter("good|bad")
        worker = Mirror(from_, to, name="m", topics=topics, commit_interval_s=0.05, on_note=told.append)
        page = MirrorStatus("m", "there")
        page.follows(worker)
        thread = threading.Thread(target=worker.run, args=(stop,))
        thread.start()
        try:
            wait_until(lambda: "bad" in worker.states.rows, READY_S, "the refusal")
            one.produce("good", 0, [b"h"] * 10)
            wait_until(lambda: count(two, "good") == 60, READY_S, "what came meanwhile")
            assert families(page)["kafkalite_mirror_topic_up"] == {"good": 1, "bad": 0}
            assert "MESSAGE_TOO_LARGE" in str(families(page)["kafkalite_mirror_topic_error_info"])
            assert page.left_behind()[0].startswith("mirror m of there cannot copy topic bad: ")
            two.admin.alter_topic_configs("bad", {"max.message.bytes": "100000"})
            wait_until(lambda: count(two, "bad") == 1, READY_S, "the topic")
            wait_until(lambda: not worker.states.rows, READY_S, "its recovery")
            assert families(page)["kafkalite_mirror_topic_up"] == {"good": 1, "bad": 1}
        finally:
            stop.set()
            thread.join()
        worker.close()
    assert len([text for text in told if "left behind" in text]) == 1
    rows = status(target, capsys)
    assert {name: row["state"] for name, row in rows.items()} == {"good": "copied", "bad": "copied"}


def families(page: MirrorStatus) -> dict[str, dict[str, float]]:
    """By family and topic."""
    found: dict[str, dict[str, float]] = {}
    for family in page.families():
        for text, value in family.rows:
            found.setdefault(family.name, {})[text.partition('topic="')[2].partition('"')[0]] = value
            if "error=" in text:
                found[family.name][text] = value
    return found


def test_pauses_between_tries_double(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(mirror_states.time, "monotonic", lambda: now[0])
    states, pauses = TopicStates(), []
    for _ in range(9):
        states.leave("bad", "refused")
        before = now[0]
        while not states.begin("bad"):
            now[0] += 0.5
        pauses.append(now[0] - before)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert states.rows["bad"].tries == 9


def test_transactions_that_fail_back_off(clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that is no topic's: of the mirror's own progress topic, for instance."""
    one, two = clients
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            if len(pauses) == 8:
                self.set()
            return self.is_set()

    worker = Mirror(one, two, name="m", topics=TopicFilter("good"), commit_interval_s=0.01)

    def refuse(*_: object) -> None:
        raise TransactionAborted("refused")

    monkeypatch.setattr(worker._progress, "write", refuse)
    assert worker.run(Stop()).record_count == 0
    worker.close()
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10, 10]


def test_status_of_a_mirror_that_never_was(target: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", "status", "--to", target.bootstrap_servers]) == 0
    assert main(["mirror", "status", "--to", target.bootstrap_servers, "--name", "none"]) == 2
    assert (
        capsys.readouterr().err == "kafkalite: no mirror named none has stored progress in the target; check --name\n"
    )


@pytest.mark.parametrize("flags", [["--to", "a:1"], ["--to", "a:1", "--from", "b:1"], ["status"]])
def test_flags_that_are_missing(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", *flags]) == 2
    assert "the following arguments are required" in capsys.readouterr().err


@pytest.mark.slow
def test_a_mirror_that_starts_while_its_source_is_down_waits(tmp_path: Path, target: Broker) -> None:
    with BrokerProcess(tmp_path / "source", port=free_port()) as live:
        with Client(live.bootstrap) as client:
            client.admin.create_topic("late", 1)
            client.produce("late", 0, [b"v"] * 7)
        live.stop()
        flags = ["--from", live.bootstrap, "--to", target.bootstrap_servers, "--name", "late", "-q"]
        command = [sys.executable, "-m", "kafkalite", "mirror", *flags]
        with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert "waiting for the brokers: cannot connect" in process.stderr.readline()
                live.start()
                with Client(target.bootstrap_servers) as client:
                    wait_until(lambda: count(client, "late") == 7, READY_S, "records")
            finally:
                process.terminate()
            assert process.wait(READY_S) == 0
