"""The tests' reader of ZooKeeper's transaction log, against a real server: everything that clients did, in order."""

import pytest
from kazoo.exceptions import NodeExistsError

from tests.kit.oracles.zookeeper_log import BEGIN, CREATE, DELETE, END, FAILED, SET, read_changes, read_log
from tests.kit.processes.broker import wait_until
from tests.kit.processes.zookeeper import ZooKeeper, password_of

pytestmark = [pytest.mark.zookeeper, pytest.mark.integration]


def test_every_change_is_read_in_order():
    with ZooKeeper() as server:
        client, other = server.client(), server.client()
        session = client.client_id[0]
        assert client.client_id[1] == password_of(session)
        client.create("/a", b"1")
        client.create("/a/e", b"ephemeral", ephemeral=True)
        client.set("/a", b"2")
        client.set("/a", b"3")
        with pytest.raises(NodeExistsError):
            client.create("/a", b"")
        client.delete("/a/e")
        client.create("/a/e", b"again", ephemeral=True)
        server.expire_session(session)
        wait_until(lambda: other.exists("/a/e") is None, 60, "the node went with its session")
        for one in (client, other):
            one.stop()
            one.close()
        server.kill()
        found = read_changes(server.transaction_log)
    ours = [(change.kind, change.path, change.value) for change in found if change.session == session]
    assert ours == [
        (BEGIN, "", b""),
        (CREATE, "/a", b"1"),
        (CREATE, "/a/e", b"ephemeral"),
        (SET, "/a", b"2"),
        (SET, "/a", b"3"),
        (FAILED, "", b""),
        (DELETE, "/a/e", b""),
        (CREATE, "/a/e", b"again"),
        (END, "", b""),
        (DELETE, "/a/e", b""),
    ]
    assert [change.zxid for change in found] == sorted(change.zxid for change in found)


def test_what_is_no_log_is_refused():
    with pytest.raises(ValueError, match="not a transaction log"):
        list(read_log(b"\0" * 100))
