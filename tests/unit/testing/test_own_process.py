"""The test kit's broker in its own process: the same members, errors as they were, and an end with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.errors import ConfigError, KafkaError, StartGivenUp, StartupError, TopicAlreadyExists
from kafkalite.testing import Fault, KafkaBroker, own_process
from kafkalite.testing.in_process import InProcessBroker
from kafkalite.testing.unpatched import Unpatched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(flush_on_acks_all=False) as broker:
        yield broker


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def process_of(broker: KafkaBroker) -> int:
    process = broker._process._process
    assert process is not None
    return process.number


def lives(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def in_child(act: Callable[[], object]) -> str:
    """What `act` returns in a forked child, or the error it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                told = str(act())
            except BaseException as error:  # noqa: BLE001  # told to the parent
                told = f"{type(error).__name__}: {error}"
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def test_it_has_every_member_of_a_broker() -> None:
    wanted = {name for kind in (Broker, InProcessBroker) for name in vars(kind) if not name.startswith("_")}
    wanted |= {"config", "failed", "faults"}  # set by __init__
    assert wanted - set(vars(KafkaBroker)) == set()


def test_members_have_the_same_values_in_both_places(tmp_path: Path) -> None:
    def seen(in_process: bool) -> dict[str, Any]:
        settings = {
            "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
            "metrics.listeners": "http://127.0.0.1:0",
            "log.dirs": str(tmp_path / str(in_process)),
        }
        with KafkaBroker(settings, in_process=in_process) as broker:
            assert broker.in_process is in_process
            assert broker.loops_turned().wait(WAIT_S)
            broker.add_user("alice", "secret")
            broker.reload_certificates()
            classic = broker.classic_endpoint
            assert classic is not None
            assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
            assert str(broker.endpoints["KAFKA"]) == broker.bootstrap_servers
            with Client(broker.bootstrap_servers) as client:
                broker.create_topic("orders", 2, cleanup_policy=["compact", "delete"])
                assert len(client.topics()["orders"].partitions) == 2
                count = broker.connection_count
                broker.delete_topic("orders")
                assert client.topics() == {}
            found = {
                "name": classic.name,
                "metrics": [url.rpartition(":")[0] for url in broker.metrics_urls],
                "connected": count > 0,
                "running": broker.running,
                "failed": broker.failed.is_set() or broker.failed.wait(0.01),
                "progress": broker.progress,
                "fault": isinstance(broker.fail("Produce", TopicAlreadyExists()), Fault),
            }
            broker.heal()
        found["stopped"] = (broker.bootstrap_servers, broker.endpoints, broker.connection_count, broker.running)
        found["ended"] = broker.failed.is_set()
        broker.heal()
        broker.stop()
        return found

    assert seen(in_process=True) == seen(in_process=False)


@pytest.mark.parametrize("name", ["logs", "config", "faults"])
def test_what_cannot_cross_names_the_option(broker: KafkaBroker, name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name} cannot be passed .*in_process=True"):
        getattr(broker, name)


class Keep:
    def deletable_count(self, segments: object, now_ms: int) -> int:
        return 0


def test_objects_and_classes_of_a_test_name_the_option() -> None:
    with pytest.raises(RuntimeError, match=r"^the argument retention_policies cannot be passed .*in_process=True"):
        KafkaBroker(retention_policies=[Keep()])
    with pytest.raises(TypeError, match=r"class Keep cannot be passed .*in_process=True"):
        KafkaBroker({"log.retention.policies": Keep})
    with pytest.raises(ConfigError, match=r"nowhere:Keep could not be imported.*in_process=True") as raised:
        KafkaBroker(log_retention_policies="nowhere:Keep")
    assert raised.value.key == "log.retention.policies"
    with pytest.raises(TypeError, match=r"^log.retention.policies: class Keep of a conftest.py .*in_process=True"):
        KafkaBroker(log_retention_policies="tests.conftest:Keep")


def test_a_class_on_the_path_of_this_process_crosses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy_of_a_test.py").write_text(
        "class Keep:\n    def deletable_count(self, segments, now_ms):\n        return 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with KafkaBroker(log_retention_policies="policy_of_a_test:Keep") as broker:
        assert broker.running


def test_errors_keep_class_and_text(broker: KafkaBroker) -> None:
    broker.create_topic("taken")
    with pytest.raises(TopicAlreadyExists, match=r"^topic taken already exists$"):
        broker.create_topic("taken")
    with pytest.raises(KafkaError, match="name") as illegal:
        broker.create_topic("a/b")
    assert illegal.value.name == "INVALID_TOPIC_EXCEPTION"
    with pytest.raises(ConfigError, match=r"num\.partition: unknown setting"):
        KafkaBroker(num_partition=1)
    with pytest.raises(StartupError, match=str(broker.port)):
        KafkaBroker(listeners=f"kafka://127.0.0.1:{broker.port}").start()
    with pytest.raises(RuntimeError, match="already running"):
        broker.start()
    with pytest.raises(TypeError):
        broker.create_topic("many", [])  # type: ignore[arg-type]


def test_a_stopped_broker_starts_again_in_another_process(tmp_path: Path) -> None:
    broker = KafkaBroker(log_dirs=str(tmp_path))
    with broker:
        broker.create_topic("kept")
        first = process_of(broker)
    assert not lives(first)
    with broker, Client(broker.bootstrap_servers) as client:
        assert process_of(broker) != first
        assert set(client.topics()) == {"kept"}


def test_a_start_that_waits_is_given_up_by_another_thread(tmp_path: Path) -> None:
    settings = {
        "process.roles": "broker",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
    }
    broker = KafkaBroker(settings)
    raised: list[BaseException] = []

    def start() -> None:
        try:
            broker.start()
        except BaseException as error:  # noqa: BLE001  # looked at below
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    until = time.monotonic() + WAIT_S
    while thread.is_alive() and time.monotonic() < until:
        assert broker.progress == ""
        broker.give_up_start()  # a start that has not begun to wait yet forgets it
        thread.join(0.1)
    assert [type(error) for error in raised] == [StartGivenUp]
    assert not broker.running


def test_ctrl_c_reaches_neither_the_process_nor_its_group(broker: KafkaBroker) -> None:
    process = process_of(broker)
    assert os.getpgid(process) != os.getpgrp()
    os.kill(process, signal.SIGINT)
    broker.create_topic("after-ctrl-c")
    assert broker.running


def test_an_exchange_that_is_cut_short_leaves_the_next_one_right(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Unpatched.read
    cuts = iter([True])

    def cut(descriptor: int, size: int) -> bytes:
        if next(cuts, False):
            raise KeyboardInterrupt
        return read(descriptor, size)

    monkeypatch.setattr(Unpatched, "read", staticmethod(cut))
    with pytest.raises(KeyboardInterrupt):
        broker.create_topic("cut-short")
    assert broker.port == int(broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(TopicAlreadyExists):
        broker.create_topic("cut-short")


def test_a_forked_child_asks_and_does_not_stop(broker: KafkaBroker) -> None:
    assert in_child(lambda: broker.create_topic("of-a-child")) == "None"
    assert in_child(broker.stop) == "None"
    assert in_child(broker.restart).startswith(f"RuntimeError: this broker belongs to process {os.getpid()}")
    assert broker.running
    with pytest.raises(TopicAlreadyExists):
        broker.create_topic("of-a-child")


def test_children_and_threads_that_ask_at_once_get_their_own_answers(broker: KafkaBroker) -> None:
    def ask() -> set[int]:
        return {len(broker.endpoints) if turn % 2 else broker.port for turn in range(200)}

    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if ask() == {1, broker.port} else 1)
            finally:
                os._exit(2)
        children.append(child)
    answers: list[set[int]] = []
    threads = [threading.Thread(target=lambda: answers.append(ask())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert answers == [{1, broker.port}] * 2


def test_it_ends_by_itself_although_a_forked_child_keeps_the_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    kill = Unpatched.kill

    def note(process: int, number: int) -> None:
        killed.append(process)
        kill(process, number)

    monkeypatch.setattr(Unpatched, "kill", staticmethod(note))
    with KafkaBroker() as broker:
        process = process_of(broker)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
    try:
        assert not lives(process)
        assert killed == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


PARENT = """
import os, sys, threading, time
from kafkalite.testing import KafkaBroker
brokers = []
thread = threading.Thread(target=lambda: brokers.append(KafkaBroker(log_dirs=sys.argv[1]).start()))
thread.start()
thread.join()  # the broker outlives the thread that started it
child = os.fork()
if child == 0:
    time.sleep(600)  # keeps the pipes open
    os._exit(0)
print(brokers[0]._process._process.number, child, flush=True)
time.sleep(600)
"""


def test_it_ends_with_a_killed_parent_whose_child_keeps_the_pipes(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    child = 0
    try:
        process, child = map(int, parent.stdout.readline().split())
        assert lives(process)
        parent.kill()
        parent.wait(WAIT_S)
        wait_for(lambda: not lives(process))
        assert lives(child)
        assert (tmp_path / ".kafka_cleanshutdown").exists()
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.stdout.close()


def test_it_ends_when_its_object_is_forgotten() -> None:
    broker = KafkaBroker()
    process = process_of(broker)
    del broker
    wait_for(lambda: not lives(process))


def test_it_inherits_nothing_but_its_pipes_and_its_log(tmp_path: Path) -> None:
    with open(tmp_path / "open", "w", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        with KafkaBroker() as broker:
            links = {os.readlink(f"/proc/{process_of(broker)}/fd/{name}") for name in range(5)}
            everything = {
                os.readlink(f"/proc/{process_of(broker)}/fd/{name}")
                for name in os.listdir(f"/proc/{process_of(broker)}/fd")
            }
    assert not any(str(tmp_path) in link for link in everything)
    assert os.devnull in links


def test_without_a_python_program_the_option_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process.sys, "executable", "")
    with pytest.raises(RuntimeError, match="in_process=True"):
        KafkaBroker()
