"""Token endpoints that take their time, say too much, break off, or point elsewhere."""

from __future__ import annotations

import pytest

from kafkalite.client import token_endpoint
from kafkalite.client.token_endpoint import ID_KEY, SECRET_KEY, URL_KEY, TokenEndpoint
from kafkalite.errors import ConfigError
from kafkalite.security.sasl import Refused
from tests.kit.fakes.raw_http import DRIPS, RawHttp, dripping, redirect_to, sent

TOKEN = b'{"access_token":"abc","expires_in":600}'


def asked(server: RawHttp) -> str:
    return TokenEndpoint({URL_KEY: server.url, ID_KEY: "me", SECRET_KEY: "s3cret"}, {}).token()


def test_a_token_comes_for_the_clients_credentials() -> None:
    with RawHttp(sent(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(TOKEN) + TOKEN)) as server:
        assert asked(server) == "abc"
    assert b"Authorization: Basic bWU6czNjcmV0\r\n" in server.requests[0]


@pytest.mark.parametrize("url", ["issuer/token?key=hidden", "https://me:hidden\uff03@issuer/token"])
def test_a_refused_address_is_not_quoted_since_it_may_hold_a_secret(url: str) -> None:
    with pytest.raises(ConfigError, match="must be an https:// URL") as refusal:
        TokenEndpoint({URL_KEY: url, ID_KEY: "me", SECRET_KEY: "s3cret"}, {})
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(("first", "drop"), DRIPS)
def test_an_answer_that_drips_is_none(monkeypatch: pytest.MonkeyPatch, first: bytes, drop: bytes) -> None:
    monkeypatch.setattr(token_endpoint, "ASK_S", 0.5)
    with RawHttp(dripping(first, drop)) as server, pytest.raises(Refused, match="cannot reach the token endpoint"):
        asked(server)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n" + TOKEN, "cannot reach the token endpoint"),
        (b"this is no HTTP\r\n\r\n", "cannot reach the token endpoint"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + TOKEN.ljust(token_endpoint.ANSWER_SIZE_MAX + 1), "no valid access_token"),
        (b"HTTP/1.1 503 Later\r\n\r\n", "HTTP status 503"),
    ],
)
def test_an_answer_that_is_broken_off_or_too_large_holds_no_token(raw: bytes, why: str) -> None:
    with RawHttp(sent(raw)) as server, pytest.raises(Refused, match=why):
        asked(server)


def test_credentials_go_nowhere_else() -> None:
    with (
        RawHttp(sent(b"HTTP/1.1 200 OK\r\n\r\n" + TOKEN)) as other,
        RawHttp(redirect_to(other.url, "307 Temporary Redirect")) as server,
        pytest.raises(Refused, match="HTTP status 307"),
    ):
        asked(server)
    assert other.requests == []
