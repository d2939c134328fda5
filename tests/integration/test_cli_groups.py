"""`kafkalite groups` against a broker of this process."""

import json

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.errors import GroupIdNotFound
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker():
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as running:
        running.create_topic("logs", partitions=2)
        with Client(running.bootstrap_servers) as client:
            client.produce("logs", 0, [b"x"] * 100)
        yield running


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as opened:
        opened.groups.commit("app", {TopicPartition("logs", 0): 40})
        yield opened


def call(broker, capsys, *arguments):
    status = main(["groups", *arguments, "-b", broker.bootstrap_servers])
    return status, capsys.readouterr().out


def test_list_and_describe(broker, client, capsys):
    status, out = call(broker, capsys, "list", "--json")
    assert status == 0
    row = {"group_id": "app", "protocol_type": "", "state": "Empty", "kind": "classic"}
    assert [group for group in json.loads(out) if group["group_id"] == "app"] == [row]
    _, out = call(broker, capsys, "describe", "app", "--json")
    (group,) = json.loads(out)
    assert (group["state"], group["members"]) == ("Empty", [])
    (row,) = group["partitions"]
    assert (row["partition"], row["committed"], row["end"], row["lag"]) == (0, 40, 100, 60)
    _, out = call(broker, capsys, "describe")
    assert "logs   0          40         100  60" in out


def test_group_of_the_newer_protocol(broker, client, capsys):
    request = ConsumerGroupHeartbeatRequest(
        group_id="next",
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["logs"],
        topic_partitions=[],
    )
    assert client.any_connection().request(api.CONSUMER_GROUP_HEARTBEAT, request).error_code == 0
    try:
        _, out = call(broker, capsys, "list")
        assert "next   Stable  consumer  consumer" in out
        _, out = call(broker, capsys, "describe", "next")
        assert "next  Stable  1 members  consumer protocol" in out
        _, out = call(broker, capsys, "describe", "next", "--json")
        (group,) = json.loads(out)
        assert (group["protocol"], group["kind"]) == ("uniform", "consumer")
        assert [(row["partition"], row["member"], row["host"]) for row in group["partitions"]] == [
            (0, "m", "127.0.0.1"),
            (1, "m", "127.0.0.1"),
        ]
    finally:
        request = ConsumerGroupHeartbeatRequest(group_id="next", member_id="m", member_epoch=-1)
        client.any_connection().request(api.CONSUMER_GROUP_HEARTBEAT, request)
        client.groups.delete("next")


@pytest.mark.parametrize(
    ("target", "asked", "offset"),
    [
        (["--to-earliest"], 0, 0),
        (["--to-latest"], 100, 100),
        (["--to-offset", "7"], 7, 7),
        (["--to-offset", "1000"], 1000, 100),
        (["--shift-by", "-15"], 25, 25),
        (["--shift-by", "-1000"], -960, 0),
        (["--to-datetime", "1999-12-31"], 0, 0),
        (["--to-datetime", "2199-12-31T12:00:00+02:00"], 100, 100),
        (["--to-datetime", "-1h"], 0, 0),
        (["--to-datetime", "+1h"], 100, 100),
        (["--to-datetime", "946684800000"], 0, 0),
    ],
)
def test_reset_shows_a_preview_and_needs_execute(broker, client, capsys, target, asked, offset):
    arguments = ["reset-offsets", "app", "--topic", "logs:0", "--json", *target]
    expected = {"topic": "logs", "partition": 0, "from": 40, "to": offset, "asked": asked}
    _, out = call(broker, capsys, *arguments)
    assert json.loads(out) == {"group": "app", "executed": False, "partitions": [expected]}
    key = TopicPartition("logs", 0)
    assert client.groups.committed("app")[key].offset == 40
    _, out = call(broker, capsys, *arguments, "--execute")
    assert json.loads(out)["executed"]
    assert client.groups.committed("app")[key].offset == offset


def test_reset_says_what_it_did(broker, client, capsys):
    flags = ("reset-offsets", "app", "--topic", "logs:0", "--to-offset")
    there = client.groups.committed("app")[TopicPartition("logs", 0)].offset
    last = "nothing to change: all offsets already have the requested value"
    assert call(broker, capsys, *flags, str(there))[1].splitlines()[-1] == last
    assert call(broker, capsys, *flags, str(there), "--execute")[1].splitlines()[-1] == last
    assert (
        call(broker, capsys, *flags, "1")[1].splitlines()[-1]
        == "nothing was changed; add --execute to commit these offsets"
    )
    assert call(broker, capsys, *flags, "1", "--execute")[1].splitlines()[-1] == "done: 1 of 1 offsets moved"


def test_reset_names_the_offsets_that_it_keeps_inside_the_log(broker, client, capsys):
    _, out = call(broker, capsys, "reset-offsets", "app", "--topic", "logs:0", "--to-offset", "1000")
    assert "logs-0: offset 1000 is outside the log (0 to 100); using 100" in out
    _, out = call(broker, capsys, "reset-offsets", "app", "--topic", "logs:0", "--to-offset", "100")
    assert "outside" not in out


def test_delete_offsets_of_a_topic(broker, client, capsys):
    kept, dropped = TopicPartition("logs", 0), TopicPartition("logs", 1)
    client.groups.commit("drop", {kept: 1, dropped: 0})
    assert call(broker, capsys, "delete-offsets", "drop", "-t", "logs:1")[1] == "deleted the offset of logs-1\n"
    assert {*client.groups.committed("drop")} == {kept}
    _, out = call(broker, capsys, "delete-offsets", "drop", "-t", "logs", "--json")
    assert json.loads(out) == {"group": "drop", "deleted": [{"topic": "logs", "partition": 0}]}
    assert client.groups.committed("drop") == {}
    assert call(broker, capsys, "delete-offsets", "drop", "-t", "logs")[0] == 1
    assert call(broker, capsys, "delete-offsets", "drop", "-t", "logs:x")[0] == 2


def test_delete_offsets_is_refused_while_a_member_reads_the_topic(broker, client, capsys):
    with client.group_reader("busy", ["logs"], reset="earliest") as reader:
        while not reader.poll(1):
            pass
        reader.commit()
        assert main(["groups", "delete-offsets", "busy", "-t", "logs", "-b", broker.bootstrap_servers]) == 1
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in capsys.readouterr().err
        assert {key.partition for key in client.groups.committed("busy")} >= {0}
    client.groups.delete("busy")


def test_reset_from_a_file(broker, client, capsys, tmp_path):
    path = tmp_path / "offsets.csv"
    path.write_text("filed,logs,0,7\nlogs,1,1000\n")
    flags = ("reset-offsets", "filed", "--from-file", str(path))
    client.groups.commit("filed", {TopicPartition("logs", 0): 40})
    status, out = call(broker, capsys, *flags, "--execute", "--json")
    end = client.end_offset("logs", 1)
    assert (status, [row["to"] for row in json.loads(out)["partitions"]]) == (0, [7, end])
    assert client.groups.committed("filed")[TopicPartition("logs", 0)].offset == 7
    assert call(broker, capsys, *flags, "--topic", "logs")[0] == 2
    path.write_text("logs;0;1\n")
    assert call(broker, capsys, *flags)[0] == 2
    assert call(broker, capsys, *flags[:-1], str(tmp_path / "none"))[0] == 2
    path.write_text('logs,0,"' + "1" * 200_000)
    capsys.readouterr()
    assert main(["groups", *flags, "-b", broker.bootstrap_servers]) == 2
    assert "line 1 is not valid CSV: field larger than field limit" in capsys.readouterr().err


def test_refusals(broker, client, capsys):
    assert call(broker, capsys, "reset-offsets", "nothing", "--to-latest")[0] == 2
    assert call(broker, capsys, "reset-offsets", "app", "--topic", "logs:x", "--to-latest")[0] == 2
    assert call(broker, capsys, "reset-offsets", "app", "--topic", "logs:1", "--shift-by", "1")[0] == 2
    assert call(broker, capsys, "reset-offsets", "app", "--to-datetime", "yesterday")[0] == 2
    assert call(broker, capsys, "reset-offsets", "app")[0] == 2
    assert call(broker, capsys, "describe", "nothing")[0] == 1


def test_delete(broker, client, capsys):
    assert call(broker, capsys, "delete", "app")[0] == 0
    with pytest.raises(GroupIdNotFound):
        client.groups.describe("app")
    assert call(broker, capsys, "delete", "app")[0] == 1
    assert call(broker, capsys, "delete", "app", "--if-exists") == (0, "group app does not exist\n")
