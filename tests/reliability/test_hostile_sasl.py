"""H: clients before they have signed in by SASL: wrong order, wrong tokens, floods. Others notice nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalite.broker.handlers.sign_in import Outcome, SignInCount
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from kafkalite.wire.protocol.messages.produce import ProduceRequest
from kafkalite.wire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.wire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness.sasl_broker import PASSWORD, RawClient, SaslBroker, answer, plain_token, request
from tests.kit.harness.tls_broker import ends_while_bytes_trickle
from tests.kit.processes.broker import wait_until

SEED = 17
METADATA = request(api.METADATA, 12, MetadataRequest(topics=[]))
PRODUCE = request(api.PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000))
FETCH = request(api.FETCH, 12, FetchRequest())
HANDSHAKE = request(api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))


def authenticate(token: bytes, version: int = 2) -> bytes:
    return request(api.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def others_are_served(sasl: SaslBroker) -> Iterator[None]:
    """After the test, a client from before it and one from after it are served."""
    with sasl.connect() as before:
        assert before.plain().error_code == 0
        yield
        assert before.metadata().cluster_id
    with sasl.connect() as after:
        found, _ = after.scram()
        assert found.error_code == 0
        assert after.metadata().cluster_id


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_mechanism_and_version_signs_in(sasl: SaslBroker, version: int) -> None:
    with sasl.connect() as client:
        assert client.api_versions().error_code == 0
        assert client.handshake("PLAIN").mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert client.authenticate(plain_token("alice", PASSWORD), version) == (0, b"", 0)
        assert client.metadata().cluster_id
        assert "User:alice" in sasl.principals()
    for user, mechanism in (("bob", "SCRAM-SHA-256"), ("carol", "SCRAM-SHA-512")):
        with sasl.connect() as client:
            found, exchange = client.scram(user, mechanism=mechanism)
            assert found.error_code == 0
            assert exchange.done
            assert client.metadata().cluster_id
            assert f"User:{user}" in sasl.principals()


def test_plain_with_the_users_of_scram(sasl: SaslBroker) -> None:
    for user in ("bob", "carol", "bob"):
        with sasl.connect("STORED") as client:
            assert client.plain(user).error_code == 0
            assert client.metadata().cluster_id
    for user, password in (("bob", "wrong"), ("nobody", PASSWORD), ("carol", PASSWORD + "x")):
        with sasl.connect("STORED") as client:
            assert client.plain(user, password).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()


def test_requests_that_come_in_one_piece_with_a_right_password_are_served_in_order(sasl: SaslBroker) -> None:
    for listener, user in (("SASL", "alice"), ("STORED", "bob")):
        with sasl.connect(listener) as client:
            client.send(HANDSHAKE + authenticate(plain_token(user, PASSWORD)) + METADATA * 50)
            assert answer(api.SASL_HANDSHAKE, 1, client.frame()).error_code == 0
            assert answer(api.SASL_AUTHENTICATE, 2, client.frame()).error_code == 0
            for _ in range(50):
                assert answer(api.METADATA, 12, client.frame()).cluster_id


def test_requests_behind_a_wrong_password_are_never_looked_at(sasl: SaslBroker) -> None:
    create = request(api.METADATA, 4, MetadataRequest(topics=[_topic("made-by-nobody")]))
    for listener in ("SASL", "STORED"):
        with sasl.connect(listener) as client:
            client.send(HANDSHAKE + authenticate(plain_token("alice", "wrong")) + create + PRODUCE)
            assert answer(api.SASL_HANDSHAKE, 1, client.frame()).error_code == 0
            assert answer(api.SASL_AUTHENTICATE, 2, client.frame()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()
    assert "made-by-nobody" not in sasl.broker.logs.topics


def _topic(name: str) -> object:
    from kafkalite.wire.protocol.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


@pytest.mark.parametrize(
    "frame", [METADATA, PRODUCE, FETCH, authenticate(b"x")], ids=["metadata", "produce", "fetch", "token"]
)
def test_request_before_anything_else_is_closed_unanswered(sasl: SaslBroker, frame: bytes) -> None:
    with sasl.connect() as client:
        client.send(frame)
        assert client.is_closed()
    with sasl.connect() as client:
        client.api_versions()
        client.send(frame)
        assert client.is_closed()


def test_second_question_for_versions_is_closed_unanswered(sasl: SaslBroker) -> None:
    with sasl.connect() as client:
        client.api_versions()
        client.send(request(api.API_VERSIONS, 0, _versions()))
        assert client.is_closed()


def _versions() -> object:
    from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest

    return ApiVersionsRequest()


def test_versions_may_be_asked_again_after_a_refusal(sasl: SaslBroker) -> None:
    with sasl.connect() as client:
        client.send(struct.pack(">ihhih", 10, api.API_VERSIONS, 99, 5, -1))
        frame = client.frame()
        assert frame[:6] == struct.pack(">ih", 5, ErrorCode.UNSUPPORTED_VERSION)
        assert client.api_versions(name="bad name!").error_code == ErrorCode.INVALID_REQUEST
        everything = client.api_versions()
        assert everything.error_code == 0
        assert {row.api_key for row in everything.api_keys} >= {api.PRODUCE, api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE}
        assert client.plain().error_code == 0


def test_mechanism_that_is_not_offered_is_told_with_those_that_are(sasl: SaslBroker) -> None:
    for mechanism in ("GSSAPI", "", "plain", "X" * 1000):
        with sasl.connect() as client:
            found = client.handshake(mechanism)
            assert found.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert found.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
            assert client.is_closed()


def test_another_request_in_the_middle_of_the_exchange_is_told_and_closed(sasl: SaslBroker) -> None:
    with sasl.connect() as client:
        client.handshake("SCRAM-SHA-256")
        client.send(FETCH)
        assert answer(api.FETCH, 12, client.frame()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed()
    with sasl.connect() as client:
        client.handshake("PLAIN")
        client.send(request(api.METADATA, 12, MetadataRequest(topics=[_topic("unknown")])))
        found = answer(api.METADATA, 12, client.frame())
        assert [topic.error_code for topic in found.topics] == [ErrorCode.ILLEGAL_SASL_STATE]
        assert (found.brokers, found.cluster_id) == ([], None), "nothing is told to who is nobody"
        assert client.is_closed()
    for frame in (HANDSHAKE, METADATA, authenticate(b"x", 2).replace(b"\0\x24\0\2", b"\0\x24\0\x09")):
        with sasl.connect() as client:
            client.handshake("SCRAM-SHA-256")
            client.send(frame)
            assert client.is_closed(past_answers=True)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0",
        b"alice\0" + PASSWORD.encode(),
        b"\0alice\0",
        b"\0\0" + PASSWORD.encode(),
        plain_token("alice", PASSWORD, "bob"),
        plain_token("alice", PASSWORD) + b"\0",
        plain_token("Alice", PASSWORD),
        plain_token("alice", PASSWORD + " "),
        plain_token("alice", "x" * 500_000),
        b"\xff\0alice\0\xfe",
    ],
)
def test_tokens_of_plain_that_are_refused(sasl: SaslBroker, token: bytes) -> None:
    with sasl.connect() as client:
        client.handshake("PLAIN")
        assert client.authenticate(token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_user_may_be_named_twice(sasl: SaslBroker) -> None:
    with sasl.connect() as client:
        client.handshake("PLAIN")
        assert client.authenticate(plain_token("alice", PASSWORD, "alice")).error_code == 0


def test_refusals_look_the_same_whoever_exists(sasl: SaslBroker) -> None:
    answers = set()
    for user in ("bob", "nobody", "carol"):
        with sasl.connect() as client:
            found, _ = client.scram(user, "wrong")
            assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            answers.add(found)
    assert len(answers) == 1


def test_tokens_without_headers(sasl: SaslBroker) -> None:
    token = plain_token("alice", PASSWORD)
    for pieces in (
        [struct.pack(">i", len(token)) + token],
        [bytes([b]) for b in struct.pack(">i", len(token)) + token],
    ):
        with sasl.connect() as client:
            assert client.handshake("PLAIN", 0).error_code == 0
            for piece in pieces:
                client.send(piece)
            assert client.frame() == b""
            assert client.metadata().cluster_id
    with sasl.connect() as client:
        client.handshake("PLAIN", 0)
        wrong = plain_token("alice", "wrong")
        client.send(struct.pack(">i", len(wrong)) + wrong + METADATA)
        assert client.is_closed()


def test_scram_without_headers(sasl: SaslBroker) -> None:
    from kafkalite.security.scram import ScramClient

    exchange = ScramClient("SCRAM-SHA-256", "bob", PASSWORD)
    with sasl.connect() as client:
        client.handshake("SCRAM-SHA-256", 0)
        token = exchange.respond(b"")
        while not exchange.done:
            client.send(struct.pack(">i", len(token)) + token)
            token = exchange.respond(client.frame())
        assert client.metadata().cluster_id


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 524_289, 2**31 - 1, 0x16030100])
def test_size_that_no_frame_has_before_signing_in(sasl: SaslBroker, size: int) -> None:
    for begin in (b"", HANDSHAKE):
        with sasl.connect() as client:
            client.send(begin)
            if begin:
                client.frame()
            client.send(struct.pack(">i", size) + b"x" * 100)
            assert client.is_closed()


def test_largest_frame_before_signing_in_is_read(sasl: SaslBroker) -> None:
    for size, served in ((524_288, True), (524_289, False)):
        with sasl.connect() as client:
            client.handshake("PLAIN")
            name = 524_288 - 4 - 10
            head = struct.pack(">hhihi", api.SASL_AUTHENTICATE, 0, 7, -1, size - 14)
            assert name > 0
            client.send(struct.pack(">i", size) + head)
            client.send(b"\0a\0" + b"x" * (size - 17))
            if served:
                assert (
                    answer(api.SASL_AUTHENTICATE, 0, client.frame()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                )
            assert client.is_closed()


def test_bytes_that_are_no_request(sasl: SaslBroker) -> None:
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        struct.pack(">i", 3) + b"abc",
        b"\0\0\0\x0a" + b"\xff" * 10,
    ):
        with sasl.connect() as client:
            client.send(data)
            client.socket.shutdown(1)
            assert client.is_closed()


def test_mutated_exchanges_never_sign_in_as_somebody_else(sasl: SaslBroker) -> None:
    chance = random.Random(SEED)
    frames = [HANDSHAKE, authenticate(plain_token("alice", "wrong")), METADATA]
    for _ in range(300):
        data = bytearray(b"".join(frames))
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with sasl.connect() as client:
            client.send(bytes(data))
            client.socket.shutdown(1)
            assert client.is_closed(past_answers=True)
    wait_until(lambda: sasl.principals() <= {"User:alice", "User:ANONYMOUS"}, 30, "the connections to go")


def test_signing_in_twice_is_an_illegal_state_and_the_connection_stays(sasl: SaslBroker) -> None:
    for listener, sign_in in (("SASL", True), ("PLAINTEXT", False)):
        with sasl.connect(listener) as client:
            if sign_in:
                client.plain()
            assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert client.authenticate(b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert client.metadata().cluster_id


def test_refusal_and_close_come_after_the_delay(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connection_failed_authentication_delay_ms="3600000") as sasl:
        waiting = [sasl.connect() for _ in range(5)]
        for client in waiting:
            client.handshake("PLAIN")
            client.send(authenticate(plain_token("alice", "wrong")) + METADATA)
        with sasl.connect() as other:
            assert other.plain().error_code == 0
            assert sasl.broker.connection_count == 6
        for client in waiting:
            client.socket.settimeout(0.01)
            with pytest.raises(TimeoutError):
                client.frame()
            client.socket.close()


def test_client_that_takes_too_long_to_sign_in_is_closed(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connection_authentication_timeout_ms="300") as sasl:
        with sasl.connect() as silent, sasl.connect() as slow, sasl.connect() as halfway, sasl.connect() as done:
            done.plain()
            slow.send(b"\0")
            halfway.handshake("SCRAM-SHA-256")
            for client in (silent, slow, halfway):
                assert client.is_closed()
            assert done.metadata().cluster_id
        wait_until(lambda: sasl.broker.connection_count == 0, 30, "the connections to go")


@pytest.mark.parametrize("signing_in", [False, True], ids=["first request", "token"])
def test_client_that_sends_a_byte_now_and_then_is_closed_too(tmp_path: Path, signing_in: bool) -> None:
    with SaslBroker(tmp_path, connection_authentication_timeout_ms="300") as sasl, sasl.connect() as client:
        if signing_in:
            client.handshake("SCRAM-SHA-256")
        assert ends_while_bytes_trickle(client.socket, struct.pack(">i", 100_000))


def test_clients_that_have_not_signed_in_are_bounded_in_number_and_bytes(tmp_path: Path) -> None:
    limits = {"connection_authentication_max": "20", "num_network_threads": "1"}
    with SaslBroker(tmp_path, **limits) as sasl, sasl.connect() as before:
        before.plain()
        waiting = [sasl.connect() for _ in range(60)]
        for client in waiting:
            client.send(b"\0\0\0")
        wait_until(lambda: sasl.broker.connection_count <= 21, 60, "the oldest to be closed")
        assert all(client.is_closed() for client in waiting[:40])
        assert before.metadata().cluster_id
        for client in waiting:
            client.socket.close()
    limits = {"connection_authentication_max_bytes": str(1024 * 1024), "num_network_threads": "1"}
    with SaslBroker(tmp_path / "bytes", **limits) as sasl, sasl.connect() as before:
        before.plain()
        waiting = []
        for _ in range(16):
            client = sasl.connect()
            waiting.append(client)
            client.handshake("PLAIN")
            client.send(struct.pack(">i", 500_000) + b"\0" * 200_000)
        wait_until(lambda: sasl.broker.connection_count < 12, 60, "the oldest to be closed")
        assert before.metadata().cluster_id
        _closed_first(waiting)


def test_who_takes_memory_from_others_stays_the_oldest(tmp_path: Path) -> None:
    limits = {
        "connection_authentication_max_bytes": str(1 << 20),
        "connection_authentication_max": "3",
        "sasl_server_max_receive_size": "1000000",
        "num_network_threads": "1",
    }
    with SaslBroker(tmp_path, **limits) as sasl, sasl.connect() as before, ExitStack() as clients:
        before.plain()
        first, second, third = (clients.enter_context(sasl.connect()) for _ in range(3))
        for client in (first, second, third):
            client.handshake("PLAIN")
        for client in (second, first):
            client.send(struct.pack(">i", 900_000) + b"\0" * 530_000)
            for _ in range(2):  # the only worker has received it by then
                before.metadata()
        assert second.is_closed(), "both together are too much"
        before.metadata()  # the only worker no longer counts it by then
        for _ in range(2):
            clients.enter_context(sasl.connect()).handshake("PLAIN")
        assert first.is_closed(), "one more than there may be"
        assert third.authenticate(plain_token("alice", PASSWORD)).error_code == 0


def _closed_first(waiting: list[RawClient]) -> None:
    """Those that were closed came before those that were not."""
    states = []
    for client in waiting:
        client.socket.settimeout(0.05)
        try:
            states.append(client.socket.recv(1) == b"")
        except TimeoutError:
            states.append(False)
        except ConnectionError:
            states.append(True)
        client.socket.close()
    assert any(states)
    assert states == sorted(states, reverse=True)


def test_signing_in_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with SaslBroker(tmp_path, clock, connections_max_reauth_ms="3600000") as sasl, sasl.connect() as client:
        assert client.plain().lifetime_ms == 3_600_000
        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE, "less than a second after the last"
        assert client.metadata().cluster_id
        for _ in range(3):
            clock.advance(1.0)
            client.send(METADATA + HANDSHAKE + authenticate(plain_token("alice", PASSWORD)) + METADATA)
            assert answer(api.METADATA, 12, client.frame()).cluster_id
            assert answer(api.SASL_HANDSHAKE, 1, client.frame()).error_code == 0
            assert answer(api.SASL_AUTHENTICATE, 2, client.frame()).session_lifetime_ms == 3_600_000
            assert answer(api.METADATA, 12, client.frame()).cluster_id
            assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert "User:alice" in sasl.principals()


def test_answers_that_are_owed_come_before_those_of_signing_in_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with SaslBroker(tmp_path, clock, connections_max_reauth_ms="3600000") as sasl, sasl.connect("STORED") as client:
        sasl.broker.create_topic("waited-for")
        client.plain("bob")
        clock.advance(1.0)
        topic = FetchTopic(topic="waited-for", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        fetch = request(api.FETCH, 12, FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic]), 1)
        client.send(fetch + HANDSHAKE + authenticate(plain_token("bob", PASSWORD)) + METADATA)
        assert answer(api.FETCH, 12, client.frame()).error_code == 0
        assert answer(api.SASL_HANDSHAKE, 1, client.frame()).error_code == 0
        assert answer(api.SASL_AUTHENTICATE, 2, client.frame()).error_code == 0
        assert answer(api.METADATA, 12, client.frame()).cluster_id


@pytest.mark.parametrize("how", ["another user", "another mechanism", "a wrong password"])
def test_signing_in_again_as_somebody_else_is_refused(tmp_path: Path, how: str) -> None:
    clock = FakeClock()
    with SaslBroker(tmp_path, clock, connections_max_reauth_ms="3600000") as sasl, sasl.connect() as client:
        client.plain()
        clock.advance(1.0)
        if how == "another mechanism":
            found, _ = client.scram("alice")
        elif how == "another user":
            found = client.plain("bob")
        else:
            found = client.plain("alice", "wrong")
        assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_session_that_is_over_serves_nothing_but_signing_in(tmp_path: Path) -> None:
    clock = FakeClock()
    with SaslBroker(tmp_path, clock, connections_max_reauth_ms="1") as sasl:
        with sasl.connect() as client:
            assert client.plain().lifetime_ms == 1
            wait_until(lambda: _is_over(client), 30, "the session to be over")
        with sasl.connect() as client:
            client.plain()
            clock.advance(1.0)
            assert client.plain().error_code == 0


def test_answer_that_was_owed_when_the_session_ended_still_comes(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms="1") as sasl, sasl.connect() as client:
        sasl.broker.create_topic("waited-for")
        topic = FetchTopic(topic="waited-for", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        fetch = request(api.FETCH, 12, FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic]), 1)
        # One piece, so that it is served in the turn in which the session begins.
        client.send(HANDSHAKE + authenticate(plain_token("alice", PASSWORD)) + fetch)
        client.frame()
        client.frame()
        assert answer(api.FETCH, 12, client.frame()).error_code == 0
        client.send(METADATA)
        assert client.is_closed()


def test_flood_of_passwords_leaves_others_their_turn(tmp_path: Path) -> None:
    """The number of concurrent password hashes is limited, so that other work of the I/O pool gets threads."""
    with SaslBroker(tmp_path, num_io_threads="4") as sasl, sasl.connect("STORED") as other:
        assert other.plain("bob").error_code == 0
        flood = [sasl.connect("STORED") for _ in range(100)]
        for client in flood:
            client.send(HANDSHAKE + authenticate(plain_token("bob", "wrong")))
        sasl.broker.create_topic("beside")
        assert other.metadata().cluster_id
        for client in flood:
            with client:
                assert answer(api.SASL_HANDSHAKE, 1, client.frame()).error_code == 0
                assert (
                    answer(api.SASL_AUTHENTICATE, 2, client.frame()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                )
                assert client.is_closed()
        refused = SignInCount("PLAIN", Outcome.CREDENTIALS, again=False)
        assert sasl.broker._parts.sign_ins["STORED"].counts()[refused] == len(flood)


def test_password_that_was_right_is_asked_again_after_a_change(sasl: SaslBroker) -> None:
    sasl.add_user("erin", "first")
    for _ in range(3):
        with sasl.connect("STORED") as client:
            assert client.plain("erin", "first").error_code == 0
    sasl.add_user("erin", "second")
    for password, code in (("first", ErrorCode.SASL_AUTHENTICATION_FAILED), ("second", 0)):
        with sasl.connect("STORED") as client:
            assert client.plain("erin", password).error_code == code


def test_name_of_a_user_cannot_write_into_the_log(sasl: SaslBroker, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a\nERROR forged", "a\x1b[31m", "a" * 60_000):
        with sasl.connect() as client:
            assert client.plain(name, "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "forged" not in caplog.text
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 60_000


def test_random_exchanges_for_a_while(sasl: SaslBroker) -> None:
    """Frames of an exchange in any order, whole and damaged, in pieces of any size."""
    chance = random.Random(SEED + 1)
    raw = [HANDSHAKE, METADATA, PRODUCE, FETCH, request(api.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))]
    mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    raw += [request(api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism)) for mechanism in mechanisms]
    for token in (b"n,,n=bob,r=abc", b"c=biws,r=abc,p=AAAA", b"\x01", plain_token("bob", "wrong")):
        raw += [authenticate(token, version) for version in range(3)] + [struct.pack(">i", len(token)) + token]
    raw.append(request(api.API_VERSIONS, 0, _versions()))
    for _ in range(2000):
        data = bytearray(b"".join(chance.choices(raw, k=chance.randint(1, 6))))
        for _ in range(chance.choice((0, 0, 1, 4))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with sasl.connect(chance.choice(("SASL", "STORED"))) as client:
            try:
                while data:
                    size = chance.choice((1, 7, 100, len(data)))
                    client.send(bytes(data[:size]))
                    del data[:size]
                client.socket.shutdown(1)
            except OSError:
                continue
            assert client.is_closed(past_answers=True)
    wait_until(lambda: sasl.principals() <= {"User:alice", "User:ANONYMOUS"}, 30, "the connections to go")


def _is_over(client: RawClient) -> bool:
    try:
        client.metadata()
    except ConnectionError:
        return True
    return False
