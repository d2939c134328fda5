"""SCRAM: the published exchanges, refusals, and that responses do not reveal which users exist."""

from __future__ import annotations

import base64
import hashlib
import hmac
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security import scram
from kafkalite.security.sasl import Refused
from kafkalite.security.scram import ScramClient, ScramServer

MECHANISM = "SCRAM-SHA-256"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SECRET = b"s" * 32


def kept(mechanism: str) -> scram.ScramCredential:
    return scram.credential(mechanism, scram.salted_password(mechanism, b"pencil", SALT, 4096), SALT, 4096)


def server(user: str = "user", mechanism: str = MECHANISM, nonce: str | None = SERVER_NONCE) -> ScramServer:
    credential = kept(mechanism)

    def find(name: str) -> scram.ScramCredential:
        return credential if name == user else scram.decoy(mechanism, SECRET, name)

    return ScramServer(mechanism, find, nonce)


def test_exchange_of_rfc_7677_on_both_sides() -> None:
    one, other = server(), ScramClient(MECHANISM, "user", "pencil", CLIENT_NONCE)
    assert other.respond(b"") == FIRST
    assert one.respond(FIRST) == CHALLENGE
    assert other.respond(CHALLENGE) == FINAL
    assert one.user is None
    assert one.respond(FINAL) == VERIFIER
    assert one.user == "user"
    assert other.respond(VERIFIER) == b""
    assert other.done


@pytest.mark.parametrize("mechanism", scram.HASHES)
@given(user=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_any_name_and_both_hashes(mechanism: str, user: str) -> None:
    one, other = server(user, mechanism, None), ScramClient(mechanism, user, "pencil")
    challenge = one.respond(other.respond(b""))
    other.respond(one.respond(other.respond(challenge)))
    assert one.user == user
    assert other.done


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=2cer,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=abc,",
        b"n,,m=future,n=user,r=abc",
        b"n,,n=\xff\xfe,r=abc",
        b"n,,n=" + b"u" * 1_000_000 + b",r=abc",
        FIRST + b"\n",
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(Refused):
        server().respond(first)


def test_user_may_name_itself_as_the_one_it_acts_for() -> None:
    one = server("a,b=c")
    challenge = one.respond(b"n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc")
    client = ScramClient(MECHANISM, "a,b=c", "pencil", "abc")
    client.respond(b"")
    final = client.respond(challenge)
    with pytest.raises(Refused, match="malformed"):  # the channel binding differs from the first message
        one.respond(final.replace(b"c=biws", b"c=" + base64.b64encode(b"n,a=x,")))


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=biw"),
        FINAL.replace(b"hNlF", b"hNlG"),
        FINAL.replace(SERVER_NONCE.encode(), b""),
        FINAL.partition(b",p=")[0],
        FINAL[:-4] + b"AAA=",
        FINAL + b"x",
        FINAL.replace(b",p=", b",p==="),
        FINAL.replace(b"dHzb", b"dHzc"),
        FINAL.partition(b",p=")[0] + b",p=" + base64.b64encode(bytes(16)),
        FINAL.partition(b",p=")[0] + b",x=y,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ],
)
def test_last_messages_that_are_refused(final: bytes) -> None:
    one = server()
    one.respond(FIRST)
    with pytest.raises(Refused):
        one.respond(final)
    assert one.user is None


@pytest.mark.parametrize(("times", "fits"), [(1, True), (2, True), (3, False)])
def test_client_part_of_the_nonce_may_come_twice_as_older_librdkafka_sends_it(times: int, fits: bool) -> None:
    one = server(nonce=None)
    challenge = one.respond(FIRST)
    salt, iterations = base64.b64decode(challenge.split(b",s=")[1].split(b",")[0]), 4096
    nonce = CLIENT_NONCE.encode() * (times - 1) + challenge[2:].split(b",")[0]
    without_proof = b"c=biws,r=" + nonce
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    said = FIRST.removeprefix(b"n,,") + b"," + challenge + b"," + without_proof
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = without_proof + b",p=" + base64.b64encode(proof)
    if fits:
        assert one.respond(final).startswith(b"v=")
    else:
        with pytest.raises(Refused, match="nonce"):
            one.respond(final)


def test_recorded_exchange_is_refused_when_it_is_played_again() -> None:
    one = server(nonce=None)
    assert one.respond(FIRST).startswith(b"r=" + CLIENT_NONCE.encode())
    with pytest.raises(Refused):
        one.respond(FINAL)


def test_unknown_user_is_asked_like_a_known_one_and_always_with_the_same_salt() -> None:
    challenges = [server("nobody-else", nonce=SERVER_NONCE).respond(FIRST) for _ in range(3)]
    assert len(set(challenges)) == 1
    salt = base64.b64decode(challenges[0].split(b",s=")[1].split(b",")[0])
    assert set(salt.decode()) <= set(string.ascii_lowercase + string.digits)
    assert challenges[0].endswith(b",i=4096")
    assert {len(salt), len(scram.new_salt())} <= {22, 23, 24, 25, 26}
    assert scram.decoy(MECHANISM, SECRET, "a").salt != scram.decoy(MECHANISM, SECRET, "b").salt
    assert scram.decoy(MECHANISM, SECRET, "a").salt != scram.decoy(MECHANISM, b"t" * 32, "a").salt


def test_unknown_user_and_wrong_password_are_refused_with_the_same_words() -> None:
    words = []
    for user in ("user", "nobody-else"):
        one, other = server(user, nonce=None), ScramClient(MECHANISM, "user", "wrong")
        with pytest.raises(Refused) as refused:
            one.respond(other.respond(one.respond(other.respond(b""))))
        words.append(str(refused.value))
    assert words[0] == words[1]


def test_name_with_the_extension_of_tokens_is_no_users() -> None:
    one = server()
    client = ScramClient(MECHANISM, "user", "pencil", CLIENT_NONCE)
    client.respond(b"")
    challenge = one.respond(FIRST + b",tokenauth=true")
    assert challenge != CHALLENGE
    with pytest.raises(Refused):
        one.respond(client.respond(challenge))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=AAAA,i=4096",
        CHALLENGE.replace(SERVER_NONCE.encode(), b""),
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=999999999"),
        CHALLENGE.replace(b"i=4096", b"i=-4096"),
        CHALLENGE.replace(b"s=W22", b"s=W2"),
        b"e=unknown-user",
    ],
)
def test_challenges_that_a_client_refuses(challenge: bytes) -> None:
    client = ScramClient(MECHANISM, "user", "pencil", CLIENT_NONCE)
    client.respond(b"")
    with pytest.raises(Refused):
        client.respond(challenge)


@pytest.mark.parametrize("final", [b"", b"e=other-error", b"v=", VERIFIER.replace(b"6rri", b"6rrj"), b"v=AAAA"])
def test_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    client = ScramClient(MECHANISM, "user", "pencil", CLIENT_NONCE)
    client.respond(b"")
    client.respond(CHALLENGE)
    with pytest.raises(Refused):
        client.respond(final)
    assert not client.done


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_answered(data: bytes) -> None:
    for one in (server(), server()):
        try:
            one.respond(data)
            one.respond(data)
        except Refused:
            continue
        raise AssertionError("two arbitrary tokens signed in")
