"""Bearer tokens: accepted tokens, their keys, and the limited rate of key requests."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.broker.security.sasl_listener import SaslListener, Users
from kafkalite.errors import ConfigError
from kafkalite.security import oauth
from kafkalite.security.oauth import BearerServer, KeySet, TokenChecker
from kafkalite.security.sasl import Refused
from kafkalite.settings.areas.sasl import ListenerSaslSettings, SaslSettings
from tests.kit.fakes.raw_http import DRIPS, RawHttp, dripping
from tests.kit.harness.certificates import Authority
from tests.kit.harness.issuer import KeyServer
from tests.kit.processes.broker import wait_until

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PUBLIC_PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)  # fmt: skip


def document() -> bytes:
    keys = [
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "rsa"},
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "only", "alg": "RS512"},
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "sealing", "use": "enc"},
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "odd", "alg": ["RS256"]},
        json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())) | {"kid": "ec"},
        json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(ED.public_key())) | {"kid": "ed"},
        {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(PUBLIC_PEM).decode()},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "RSA"},
        "no key at all",
    ]
    return json.dumps({"keys": keys}).encode()


def settings(**more: Any) -> SaslSettings:
    values = {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer/keys", **more}
    return SaslSettings(**values)


@pytest.fixture(scope="module")
def keys() -> Iterator[KeySet]:
    found = KeySet(settings(), lambda _url: document())
    found.start()
    yield found
    found.stop()


@pytest.fixture
def server(keys: KeySet) -> Callable[..., BearerServer]:
    def make(**more: Any) -> BearerServer:
        return BearerServer(
            TokenChecker(settings(**more), keys).check, more.get("sasl_oauthbearer_sub_claim_name", "sub")
        )

    return make


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {"sub": "alice", "iat": now, "exp": now + 600, **more}
    return {key: value for key, value in found.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", headers: Any = None, **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, {**({"kid": kid} if kid else {}), **(headers or {})})


def first(text: str) -> bytes:
    return b"n,,\x01auth=Bearer " + text.encode() + b"\x01\x01"


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS384", "rsa"), (RSA, "RS512", "only"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")],
)
def test_good_tokens_of_each_kind_of_key(
    server: Callable[..., BearerServer], key: Any, algorithm: str, kid: str
) -> None:
    one = server()
    assert not one.quick
    assert one.respond(first(token(key, algorithm, kid, exp=2_000_000_000))) == b""
    assert (one.user, one.expires_ms) == ("alice", 2_000_000_000_000)


def assert_refused(one: BearerServer, message: bytes) -> None:
    assert one.respond(message) == b'{"status":"invalid_token"}'
    assert one.quick
    with pytest.raises(Refused):
        one.respond(b"\x01")
    assert one.user is None


def unsigned() -> str:
    return jwt.encode(claims(), None, "none", {"kid": "rsa"})


def by_public_key() -> str:
    """Signed with the RSA key's public half as if it were a shared secret."""
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode()).rstrip(b"=")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(header + b"." + body, PUBLIC_PEM)
    return b".".join((header, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


BAD = {
    "unsigned": unsigned,
    "a public key as a secret": by_public_key,
    "a shared secret of the document": lambda: token(PUBLIC_PEM.replace(b"-----", b""), "HS256", "shared"),
    "another key": lambda: token(OTHER_RSA),
    "a key that is not there": lambda: token(kid="absent"),
    "no key named, and another key": lambda: token(OTHER_RSA, kid=None),
    "an algorithm that the key is not for": lambda: token(RSA, "RS256", "only"),
    "a key for sealing": lambda: token(kid="sealing"),
    "expired": lambda: token(exp=int(time.time()) - 31),
    "issued ahead": lambda: token(iat=int(time.time()) + 100),
    "not yet": lambda: token(nbf=int(time.time()) + 100),
    "no end": lambda: token(exp=None),
    "no begin": lambda: token(iat=None),
    "exp claim is out of range": lambda: token(exp="soon"),
    "an end out of reach": lambda: token(exp=10**400),
    "nobody": lambda: token(sub=None),
    "an empty name": lambda: token(sub=" "),
    "a name that is a list": lambda: token(sub=["alice"]),
    "scopes twice": lambda: token(scope="a b a"),
    "scopes that are a number": lambda: token(scope=7),
    "critical extensions": lambda: token(headers={"crit": ["exp"], "exp": 1}),
    "a token in a token": lambda: jwt.api_jws.PyJWS().encode(
        token().encode(), RSA, "RS256", {"kid": "rsa", "cty": "JWT"}
    ),
    "keys of its own": lambda: token(
        OTHER_RSA, headers={"jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1"}
    ),
    "no token": lambda: "abc",
    "dots": lambda: "..",
    "long": lambda: "x" * 70_000,
}


def test_tokens_and_keys_without_an_id(server: Callable[..., BearerServer]) -> None:
    """A token without `kid` is checked by each key that fits; one that names a key is checked by that key alone."""
    assert server().respond(first(token(kid=None))) == b""
    unnamed = [
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) for key in (OTHER_RSA, RSA)
    ]  # fmt: skip
    found = KeySet(settings(), lambda _url: json.dumps({"keys": unnamed}).encode())
    found.start()
    try:
        check = TokenChecker(settings(), found).check
        for key in (RSA, OTHER_RSA):
            assert BearerServer(check, "sub").respond(first(token(key, kid=None))) == b""
        assert_refused(BearerServer(check, "sub"), first(token(RSA, kid="rsa")))
        assert_refused(BearerServer(check, "sub"), first(token(EC, "ES256", kid=None)))
    finally:
        found.stop()


@pytest.mark.parametrize("name", BAD)
def test_tokens_that_are_not_believed(server: Callable[..., BearerServer], name: str) -> None:
    assert_refused(server(), first(BAD[name]()))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\0\x01\x01",
        b"\xff" * 100,
    ],
)
def test_messages_that_follow_no_grammar(server: Callable[..., BearerServer], message: bytes) -> None:
    assert_refused(server(), message)


def test_issuer_audience_and_names_of_claims(server: Callable[..., BearerServer]) -> None:
    more = {
        "sasl_oauthbearer_expected_issuer": "https://us",
        "sasl_oauthbearer_expected_audience": ("kafka", "other"),
        "sasl_oauthbearer_sub_claim_name": "client",
    }
    good = {"iss": "https://us", "aud": ["kafka"], "client": "bob", "sub": "x"}
    one = server(**more)
    assert one.respond(first(token(**good))) == b""
    assert one.user == "bob"
    for bad in ({"iss": "https://them"}, {"iss": None}, {"aud": "elsewhere"}, {"aud": None}, {"client": None}):
        assert_refused(server(**more), first(token(**good | bad)))
    assert server().respond(first(token(aud="anything", iss="anybody"))) == b""


def test_user_that_is_acted_for_is_the_tokens_own(server: Callable[..., BearerServer]) -> None:
    message = first(token(sub="a,b"))
    assert server().respond(message.replace(b"n,,", b"n,a=a=2Cb,")) == b""
    assert_refused(server(), message.replace(b"n,,", b"n,a=other,"))
    assert server().respond(message[:-1] + b"traceId=7\x01\x01") == b""


def test_unsecured_tokens_need_a_setting_that_says_so(server: Callable[..., BearerServer]) -> None:
    one = server(sasl_oauthbearer_allow_unsecured_tokens=True)
    assert one.respond(first(unsigned())) == b""
    assert one.user == "alice"
    expired = jwt.encode(claims(exp=int(time.time()) - 100), None, "none")
    assert_refused(server(sasl_oauthbearer_allow_unsecured_tokens=True), first(expired))
    assert_refused(server(sasl_oauthbearer_allow_unsecured_tokens=True), first(unsigned() + "eA"))
    assert_refused(server(sasl_oauthbearer_allow_unsecured_tokens=True), first(by_public_key()))


def test_keys_that_are_not_known_are_fetched_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [json.dumps({"keys": []}).encode(), document()]
    reads: list[str] = []

    def read(url: str) -> bytes:
        reads.append(url)
        return documents[min(len(reads), len(documents)) - 1]

    monkeypatch.setattr(oauth, "FETCH_INTERVAL_S_MIN", 0.0)
    found = KeySet(settings(), read)
    found.start()
    try:
        wait_until(lambda: found.fetch_count >= 1, 60, "the first fetch")
        assert found.find("rsa", "RS256"), "a new key is found by asking again"
        assert len(reads) == 2
        monkeypatch.setattr(oauth, "FETCH_INTERVAL_S_MIN", 3600.0)
        assert [found.find(f"absent {i}", "RS256") for i in range(10_000)] == [[]] * 10_000
        assert len(reads) == 2
        assert set(reads) == {"https://issuer/keys"}
    finally:
        found.stop()


def test_keys_stay_when_the_document_cannot_be_had() -> None:
    answers: list[Any] = [
        document(),
        OSError("gone"),
        b"{",
        b"[]",
        b'{"keys": 7}',
        b'{"keys": []}',
        b"[" * 100_000,
        document(),
    ]
    count = len(answers)

    def read(_url: str) -> bytes:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return bytes(answer)

    more = {
        "sasl_oauthbearer_jwks_endpoint_refresh_ms": 1,
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": 1,
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": 2,
    }
    found = KeySet(settings(**more), read)
    found.start()
    try:
        wait_until(lambda: found.fetch_count >= 1, 60, "the first fetch")
        while found.fetch_count < count:
            assert found.find("rsa", "RS256")
    finally:
        found.stop()


def test_file_of_keys_is_read_at_the_start(tmp_path: Any) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(document())
    found = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=path.as_uri()))
    found.start()
    assert found.find("ec", "ES256")
    found.stop()
    for content in (b"", b"x" * 2_000_000, b'{"keys": []}', b'{"keys": [{"kty": "RSA", "kid": "broken"}]}'):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="jwks"):
            KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=path.as_uri())).start()


@pytest.fixture
def key_server(tmp_path: Path) -> Iterator[KeyServer]:
    """A key server whose certificate is by a separate authority, in authority.pem, for 127.0.0.1 and localhost."""
    authority = Authority()
    authority.write_pem(tmp_path / "authority.pem")
    Authority("another").write_pem(tmp_path / "another.pem")
    with KeyServer(document(), authority.issue("issuer"), tmp_path) as server:
        yield server


def trusting(path: Path, **more: str) -> dict[str, str]:
    return {"ssl.truststore.location": str(path), **more}


def test_failed_fetch_logs_the_address_without_the_secrets_that_it_may_hold(caplog: pytest.LogCaptureFixture) -> None:
    def read(_url: str) -> bytes:
        raise OSError("no route")

    url = "https://me:hidden@issuer:8443/keys?token=hidden"
    assert KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=url), read)._fetch() is None
    assert "https://issuer:8443/keys: no route" in caplog.text
    assert "hidden" not in caplog.text


def test_keys_by_https_from_a_server_that_is_trusted(key_server: KeyServer, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{key_server.port}/keys"
    tls = trusting(tmp_path / "authority.pem")
    found = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=url), tls=tls)
    found.start()
    try:
        assert found.find("ec", "ES256")
        assert found.find("ed", "EdDSA")
    finally:
        found.stop()
    assert key_server.requests == ["/keys"]


def test_keys_by_https_from_a_server_that_is_not_trusted(
    key_server: KeyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = f"https://127.0.0.1:{key_server.port}/keys"
    unnamed = {"ssl.endpoint.identification.algorithm": ""}
    right = tmp_path / "authority.pem"
    refused: list[tuple[str, dict[str, str]]] = [
        (named, {}),
        (named, trusting(tmp_path / "another.pem")),
        (named, trusting(tmp_path / "another.pem", **unnamed)),
    ]
    for url, tls in refused:
        caplog.clear()
        found = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=url), tls=tls)
        assert found._fetch() is None
        assert "certificate verify failed" in caplog.text
    assert key_server.requests == []
    keys = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=named), tls=trusting(right, **unnamed))._fetch()
    assert keys is not None
    assert {row.key_id for row in keys} >= {"rsa", "ec", "ed"}


def test_server_of_keys_that_has_another_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    path = authority.write_pem(tmp_path / "authority.pem")
    with KeyServer(document(), authority.issue("issuer", hosts=("elsewhere",), addresses=()), tmp_path) as server:
        one = settings(sasl_oauthbearer_jwks_endpoint_url=f"https://127.0.0.1:{server.port}/keys")
        assert KeySet(one, tls=trusting(path))._fetch() is None
        assert "certificate verify failed" in caplog.text
        assert KeySet(one, tls=trusting(path, **{"ssl.endpoint.identification.algorithm": ""}))._fetch()
        assert server.requests == ["/keys"]


@pytest.mark.parametrize(("path", "reason"), [("elsewhere", "answers 302"), ("long", "is larger than")])
def test_server_of_keys_that_points_elsewhere_or_says_too_much(
    key_server: KeyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, reason: str
) -> None:
    url = f"https://127.0.0.1:{key_server.port}/{path}"
    found = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=url), tls=trusting(tmp_path / "authority.pem"))
    assert found._fetch() is None
    assert reason in caplog.text
    assert key_server.requests == [f"/{path}"]


@pytest.mark.parametrize(("first", "drop"), DRIPS)
def test_server_of_keys_that_lets_them_drip(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, first: bytes, drop: bytes
) -> None:
    monkeypatch.setattr(oauth, "FETCH_S_MAX", 1.0)
    authority = Authority()
    path = authority.write_pem(tmp_path / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(authority.issue("issuer").write_pem(tmp_path / "issuer.pem")))
    with RawHttp(dripping(first, drop), context) as server:
        found = KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=server.url), tls=trusting(path))
        assert found._fetch() is None
    assert "stay in use" in caplog.text
    assert "Traceback" not in caplog.text
    assert server.requests[0].startswith(b"GET /document ")


def test_listener_takes_whom_to_trust_from_its_login_module(key_server: KeyServer, tmp_path: Path) -> None:
    """As in Kafka, whose validator takes these settings from the options of OAuthBearerLoginModule."""
    texts = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"https://127.0.0.1:{key_server.port}/keys",
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    key = "listener.name.x.oauthbearer.sasl.jaas.config"

    def listener(options: str) -> SaslListener:
        found = ListenerSaslSettings.of_listener("x", {**texts, key: f"{module} {options};"})
        return SaslListener("x", found, Users({}, b"secret"), encrypted=True)

    one = listener(f'ssl.truststore.location="{tmp_path / "authority.pem"}"')
    one.start()
    try:
        wait_until(lambda: key_server.requests, 60, "the keys to be asked for")
    finally:
        one.stop()
    for bad, reason in (
        ("ssl.truststore.locaton=x", "unknown login module option"),
        ('ssl.truststore.location="/absent"', "absent"),
        ("ssl.endpoint.identification.algorithm=ldaps", "https or empty"),
    ):
        with pytest.raises(ConfigError, match=reason):
            listener(bad)


@pytest.mark.parametrize("url", ["https://me:hidden\uff03@issuer/keys", "https://me:hidden#@issuer/keys"])
def test_an_invalid_address_of_keys_is_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid URL") as refusal:
        KeySet(settings(sasl_oauthbearer_jwks_endpoint_url=url))
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1/keys", "ftp://x/y", "keys.json", "data:,x"])
def test_documents_elsewhere_are_not_read(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with https"):
        oauth.read_document(url)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    for path in (tmp_path / "keys", tmp_path):
        with pytest.raises(ValueError, match="not a regular file"):
            oauth.read_document(path.as_uri())
    (tmp_path / "keys.json").write_bytes(b"{}")
    assert oauth.read_document((tmp_path / "keys.json").as_uri()) == b"{}"


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    one = BearerServer(TokenChecker(settings(), None).check, "sub")
    assert_refused(one, data)
    assert_refused(
        BearerServer(TokenChecker(settings(), None).check, "sub"), b"n,,\x01auth=Bearer " + data + b"\x01\x01"
    )
