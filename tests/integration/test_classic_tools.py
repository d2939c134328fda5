"""0.7's tools against a real ZooKeeper and a small 0.7 broker: what they print, write and refuse."""

import io
import re
import sys

import pytest

from kafkalite.classic.config import ConsumerConfig
from kafkalite.classic.consumer import Consumer
from kafkalite.classic.messages import Message, MessageSet, encode_message_set
from kafkalite.cli import main
from tests.kit.fakes.classic_broker import ClassicBroker
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]

WAIT_S = 60.0


@pytest.fixture
def client(zookeeper_client):
    return zookeeper_client


@pytest.fixture
def broker(client):
    made = ClassicBroker(0, 2).start()
    made.register(client, "t")
    yield made
    made.stop()


@pytest.fixture
def run(capsys):
    def call(*words, status=0):
        capsys.readouterr()
        assert main(["classic", *map(str, words)]) == status, capsys.readouterr().err
        return capsys.readouterr()

    return call


def fill(broker, partition, *payloads, topic="t"):
    broker.append(topic, partition, encode_message_set([Message(payload) for payload in payloads]))


def payloads(broker, topic="t"):
    found = []
    for (name, _), log in sorted(broker.logs.items()):
        if name == topic:
            found += [item.message.payload for item in MessageSet(bytes(log))]
    return found


def stored(client, group, name, topic="t"):
    return int(client.get(f"/consumers/{group}/offsets/{topic}/{name}")[0])


class Input:
    """Standard input of given bytes."""

    def __init__(self, data):
        self.buffer = io.BytesIO(data)

    def __iter__(self):
        return (line.decode() for line in self.buffer)


@pytest.mark.parametrize("flags", [(), ("--sync",), ("--compress",), ("--no-compress",)])
def test_console_producer_sends_lines(zookeeper, broker, run, monkeypatch, flags):
    monkeypatch.setattr(sys, "stdin", Input("eins\nzwei\r\ndrei ä".encode()))
    run("console-producer", "--topic", "t", "--zookeeper", zookeeper.address, *flags)
    wait_until(lambda: sorted(payloads(broker)) == ["drei ä".encode(), b"eins", b"zwei"], WAIT_S, "the lines arrived")
    codecs = {item.message.codec for log in broker.logs.values() for item in MessageSet(bytes(log)).shallow()}
    assert codecs == ({0} if "--no-compress" in flags else {1})


def test_console_consumer_prints_and_removes_its_group(zookeeper, client, broker, run):
    fill(broker, 0, b"a", b"b")
    fill(broker, 1, b"c")
    found = run("console-consumer", "--topic", "t", "--zookeeper", zookeeper.address, "--from-beginning",
                "--max-messages", 3)  # fmt: skip
    assert sorted(found.out.split()) == ["a", "b", "c"]
    assert "Consumed 3 messages" in found.err
    assert client.get_children("/consumers") == []


def test_a_console_consumer_resumes_at_its_groups_offsets(zookeeper, client, broker, run):
    fill(broker, 0, b"a", b"b")
    flags = ("--topic", "t", "--zookeeper", zookeeper.address, "--group", "g", "--max-messages", 1)
    assert run("console-consumer", *flags, "--from-beginning").out == "a\n"
    assert run("console-consumer", *flags).out == "b\n"
    assert run("console-consumer", *flags, "--from-beginning").out == "a\n"


def test_console_consumer_with_checksums_and_a_timeout(zookeeper, broker, run):
    fill(broker, 0, b"hello")
    found = run("console-consumer", "--whitelist", "t|u", "--zookeeper", zookeeper.address, "--from-beginning",
                "--consumer-timeout-ms", 500, "--formatter", "kafka.consumer.ChecksumMessageFormatter",
                "--property", "topic=t")  # fmt: skip
    assert found.out == f"t-checksum:{0x3610A686}\n"


def properties(tmp_path, name, **values):
    path = tmp_path / name
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return path


def test_shells(zookeeper, broker, run, tmp_path, monkeypatch):
    producing = properties(tmp_path, "producer", zk_connect=zookeeper.address)
    monkeypatch.setattr(sys, "stdin", Input(b" one \n two\n"))
    found = run("producer-shell", "--props", producing, "--topic", "t")
    assert found.out == "Sent: one (3 bytes)\nSent: two (3 bytes)\n"
    wait_until(lambda: len(payloads(broker)) == 2, WAIT_S, "the lines arrived")
    consuming = properties(tmp_path, "consumer", zk_connect=zookeeper.address, groupid="g", consumer_timeout_ms=500)
    found = run("consumer-shell", "--props", consuming, "--topic", "t")
    assert {"consumed: one", "consumed: two", "Received 2 messages"} <= set(found.out.splitlines())


def test_offset_checker_prints_blocks(zookeeper, client, broker, run):
    fill(broker, 0, b"x" * 90)
    with Consumer.create(ConsumerConfig(groupid="g", consumerid="c", zk_connect=zookeeper.address)) as connector:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
        next(stream)
        connector.commit_offsets()
        fill(broker, 0, b"y" * 1990)
        found = run("offset-checker", "--zkconnect", zookeeper.address, "--group", "g", "--topic", "t")
    assert found.out == (
        "g,t,0-0 (Group,Topic,BrokerId-PartitionId)\n"
        "               Owner = g_c-0\n"
        "     Consumer offset = 100\n"
        "                     = 100 (0.00G)\n"
        "            Log size = 2100\n"
        "                     = 2,100 (0.00G)\n"
        "        Consumer lag = 2000\n"
        "                     = 2,000 (0.00G)\n"
        "\n"
        "g,t,0-1 (Group,Topic,BrokerId-PartitionId)\n"
        "               Owner = g_c-0\n"
        "     Consumer offset = 0\n"
        "                     = 0 (0.00G)\n"
        "            Log size = 0\n"
        "                     = 0 (0.00G)\n"
        "        Consumer lag = 0\n"
        "                     = 0 (0.00G)\n"
        "\n"
        "BROKER INFO\n"
        f"0 -> 127.0.0.1:{broker.port}\n"
    )
    found = run("offset-checker", "--zkconnect", zookeeper.address, "--group", "g")
    assert "               Owner = null\n" in found.out


def test_offsets_go_through_a_file(zookeeper, client, broker, run, tmp_path):
    for group, offset in (("g", b"17"), ("h", b"0")):
        client.create(f"/consumers/{group}/offsets/t/0-0", offset, makepath=True)
    path = tmp_path / "offsets"
    run("export-offsets", "--zkconnect", zookeeper.address, "--output-file", path)
    assert path.read_text() == "/consumers/g/offsets/t/0-0:17\n/consumers/h/offsets/t/0-0:0\n"
    run("export-offsets", "--zkconnect", zookeeper.address, "--output-file", path, "--group", "g")
    assert path.read_text() == "/consumers/g/offsets/t/0-0:17\n"
    path.write_text("/consumers/g/offsets/t/0-0:5\n/consumers/new/offsets/t/0-1:6\n\n/consumers/g/offsets/t/0-0:9\n")
    found = run("import-offsets", "--zkconnect", zookeeper.address, "--input-file", path)
    assert found.err == "imported 2 offsets\n"
    assert stored(client, "g", "0-0") == 5
    assert stored(client, "new", "0-1") == 6


def test_no_offsets_at_all_is_no_success(zookeeper, client, broker, run, tmp_path):
    path = tmp_path / "offsets"
    server = ("--zkconnect", zookeeper.address)
    found = run("export-offsets", *server, "--output-file", path, "--group", "nobody", status=1)
    assert "group nobody has no offsets to export" in found.err
    assert not path.exists()
    path.write_text("\n/consumers/g/offsets/t/0-0:5\n")
    assert "no offset before" in run("import-offsets", *server, "--input-file", path, status=2).err
    config = properties(tmp_path, "consumer", zk_connect=zookeeper.address, groupid="g")
    assert "no broker has topic missing" in run("update-offsets", "latest", config, "missing", status=1).err
    found = run("verify-rebalance", "--zk.connect", zookeeper.address, "--group", "nobody", status=2)
    assert "group nobody has no consumers" in found.err


@pytest.mark.parametrize("line", ["nonsense", "/consumers/g/offsets/t/0-0", "/consumers/g/offsets/t/0:1",
                                  "/consumers/g/owners/t/0-0:1", "/consumers/g/offsets/t/0-0:x"])  # fmt: skip
def test_file_of_offsets_that_is_none_changes_nothing(zookeeper, client, run, tmp_path, line):
    path = tmp_path / "offsets"
    path.write_text(f"/consumers/g/offsets/t/0-0:5\n{line}\n")
    found = run("import-offsets", "--zkconnect", zookeeper.address, "--input-file", path, status=2)
    assert "line 2: expected" in found.err
    assert client.exists("/consumers/g") is None


def test_get_offsets(broker, run):
    fill(broker, 0, b"hello")
    where = f"kafka://127.0.0.1:{broker.port}"
    assert run("get-offsets", "--server", where, "--topic", "t", "--time", -1, "--offsets", 5).out == (
        "get 2 results\n15\n0\n"
    )
    assert run("get-offsets", "--server", where, "--topic", "t", "--time", -2).out == "get 1 results\n0\n"


def test_update_offsets(zookeeper, client, broker, run, tmp_path):
    fill(broker, 0, b"hello")
    config = properties(tmp_path, "consumer", zk_connect=zookeeper.address, groupid="g")
    found = run("update-offsets", "latest", config, "t")
    assert found.out == (
        "updating partition 0-0 with new offset: 15\n"
        "updating partition 0-1 with new offset: 0\n"
        "updated the offset for 2 partitions\n"
    )
    assert stored(client, "g", "0-0") == 15
    run("update-offsets", "earliest", config, "t")
    assert stored(client, "g", "0-0") == 0


def test_verify_rebalance(zookeeper, client, broker, run):
    flags = ("verify-rebalance", "--zk.connect", zookeeper.address, "--group", "g")
    with Consumer.create(ConsumerConfig(groupid="g", zk_connect=zookeeper.address)) as connector:
        connector.create_message_streams({"t": 1})
        assert run(*flags).out == "Rebalance operation successful !\n"
        client.set("/consumers/g/owners/t/0-1", b"g_gone-0")
        found = run(*flags, status=1)
        assert found.out == "Rebalance operation failed !\n"
        assert "t-0-1 has owner g_gone-0, which is not running" in found.err


def test_replay_copies_a_topic(zookeeper, client, broker, run, monkeypatch):
    monkeypatch.setattr("kafkalite.cli.classic.copies.REPLAY_TIMEOUT_MS", 500)
    client.create("/brokers/topics/u/0", b"1", ephemeral=True, makepath=True)
    fill(broker, 0, *(b"%d" % number for number in range(500)))
    where = zookeeper.address
    run("replay", "--zookeeper", where, "--brokerinfo", f"zk.connect={where}", "--inputtopic", "t",
        "--outputtopic", "u", "--threads", 2, "--compression-codec", 1)  # fmt: skip
    wait_until(lambda: len(payloads(broker, "u")) == 500, WAIT_S, "the copy is there")
    assert payloads(broker, "u") == payloads(broker, "t")


@pytest.mark.slow
def test_perf_tools_print_their_columns(zookeeper, client, broker, run, monkeypatch):
    monkeypatch.setattr("kafkalite.cli.classic.perf.CONSUMER_TIMEOUT_MS", 500)
    found = run("producer-perf", "--topic", "t", "--brokerinfo", f"broker.list=0:127.0.0.1:{broker.port}",
                "--messages", 1000, "--message-size", 50, "--batch-size", 10, "--threads", 2)  # fmt: skip
    header, row = found.out.splitlines()
    assert header == (
        "start.time, end.time, compression, message.size, batch.size, total.data.sent.in.MB, MB.sec, "
        "total.data.sent.in.nMsg, nMsg.sec"
    )
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
    assert re.fullmatch(rf"{stamp}, {stamp}, 0, 50, 10, 0\.05, \d+\.\d{{4}}, 1000, \d+\.\d{{4}}", row)
    wait_until(lambda: len(payloads(broker)) == 1000, WAIT_S, "the messages arrived")
    found = run("consumer-perf", "--topic", "t", "--zookeeper", zookeeper.address, "--threads", 2)
    header, row = found.out.splitlines()
    assert header == "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
    assert re.fullmatch(rf"{stamp}, {stamp}, 1048576, 0\.05, \d+\.\d{{4}}, 1000, \d+\.\d{{4}}", row)
    found = run("simple-consumer-perf", "--topic", "t", "--server", f"kafka://127.0.0.1:{broker.port}", "--hide-header",
                "--partition", 1)  # fmt: skip
    count = len([1 for item in MessageSet(bytes(broker.logs["t", 1]))])
    assert f", {count}, " in found.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("no-such-tool",), "unknown tool"),
        (("offset-cheker",), "did you mean 'offset-checker'"),
        (("console-producer", "--topic", "t"), "--zookeeper"),
        (("console-consumer", "--zookeeper", "a:1"), "--topic"),
        (("console-consumer", "--zookeeper", "a:1", "--whitelist", "a("), "not a regular expression"),
        (("get-offsets", "--server", "host", "--topic", "t", "--time", "-1"), "kafka://host:port"),
        (("producer-perf", "--topic", "t", "--messages", "1", "--brokerinfo", "x"), "--brokerinfo"),
        (("producer-perf", "--topic", "t", "--messages", "1", "--brokerinfo", "broker.list=x"), "broker.list"),
        (("export-offsets", "--zkconnect", "127.0.0.1:1", "--output-file", "/nowhere/x"), "no ZooKeeper server"),
    ],
)
def test_what_the_tools_refuse(run, words, text, monkeypatch):
    monkeypatch.setattr("kafkalite.cli.classic.common.CONNECTION_TIMEOUT_S", 0.2)
    found = run(*words, status=2)
    assert text in found.err
    assert found.err.startswith("kafkalite: ")


def test_help_of_every_tool(run):
    from kafkalite.cli.classic import TOOLS

    assert "offset-checker" in run("--help").out
    for name in TOOLS:
        assert f"usage: kafkalite classic {name}" in run(name, "--help").out
