"""Who gets through to an application, request by request, without a socket."""

import base64
import functools
import json
from typing import Any

import pytest

from kafkalite.web.guard import Guard, is_loopback, known_names, user_in
from kafkalite.web.server import Address
from kafkalite.web.signin import CERTIFICATE, FAILURES_MAX, FAILURES_WITHIN_S, SignIn
from kafkalite.web.users import Role, Users, certificate_line, password_line, token_line

NAMES = known_names([Address("http", "127.0.0.1", 80)], ["registry.example"])
TOKEN_LINE, TOKEN = token_line("ci", Role.OPERATOR)


@functools.cache
def users() -> Users:
    """Made when a test asks: hashing a password takes long on purpose."""
    return Users([password_line("alice", Role.ADMIN, "a b:c"), TOKEN_LINE, certificate_line("CN=app", Role.VIEWER)])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    user = user_in(environ)
    return [b"" if user is None else f"{user.name} {user.role.name}".encode()]


def ask(guard: Guard, method: str = "GET", **headers: Any) -> tuple[int, dict[str, str], bytes]:
    answers = []
    environ = {"REQUEST_METHOD": method, "REMOTE_ADDR": "192.0.2.1", "wsgi.url_scheme": "http", **headers}
    body = b"".join(guard(environ, lambda status, headers, *_: answers.append((int(status[:3]), dict(headers)))))
    return *answers[0], body


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def guarded(sign_in: SignIn | None = None) -> Guard:
    return Guard(application, names=NAMES, sign_in=sign_in, realm="test")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8081", "localhost", "LocalHost.:8081", "[::1]:8081", "10.1.2.3", "registry.example:8081", ""]
)
def test_names_of_this_machine_and_addresses_are_served(host: str) -> None:
    assert ask(guarded(), HTTP_HOST=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8081", "localhost.evil.example", "a" * 9000])
def test_a_name_that_somebody_else_points_here_is_refused(host: str) -> None:
    status, _, body = ask(guarded(), HTTP_HOST=host)
    assert status == 421
    assert len(body) < 300


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"HTTP_ORIGIN": "http://localhost"}, 200),
        ({"HTTP_ORIGIN": "http://evil.example"}, 403),
        ({"HTTP_ORIGIN": "https://localhost"}, 403),
        ({"HTTP_ORIGIN": "null"}, 403),
        ({"HTTP_SEC_FETCH_SITE": "same-origin"}, 200),
        ({"HTTP_SEC_FETCH_SITE": "none"}, 200),
        ({"HTTP_SEC_FETCH_SITE": "same-site"}, 403),
        ({"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_ORIGIN": "http://localhost"}, 403),
    ],
)
def test_a_page_of_another_site_changes_nothing(headers: dict[str, str], status: int) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(guarded(), method, HTTP_HOST="localhost", **headers)[0] == status
    assert ask(guarded(), "GET", HTTP_HOST="localhost", **headers)[0] == 200


def test_every_answer_tells_browsers_what_they_may_not_do() -> None:
    for status, headers, _ in (ask(guarded(), HTTP_HOST="localhost"), ask(guarded(), HTTP_HOST="evil.example")):
        assert headers["X-Content-Type-Options"] == "nosniff", status
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"


def test_who_shows_nothing_or_something_wrong_is_asked_to_sign_in() -> None:
    guard = guarded(SignIn(users()))
    wrong = [
        "",
        basic("alice", "wrong"),
        basic("nobody", "a b:c"),
        basic("alice", ""),
        "Basic",
        "Basic %%%",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Bearer x",
        "Digest a",
    ]
    for header in wrong:
        status, headers, body = ask(guard, HTTP_AUTHORIZATION=header, REMOTE_ADDR=f"192.0.2.{wrong.index(header)}")
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic realm=")
        assert json.loads(body)["error_code"] == 401


def test_a_password_a_token_and_a_certificate_come_in() -> None:
    guard = guarded(SignIn(users(), certificate_name=lambda der: der.decode()))
    for _ in range(2):  # the second time from memory
        assert ask(guard, HTTP_AUTHORIZATION=basic("alice", "a b:c"))[2] == b"alice ADMIN"
    assert ask(guard, HTTP_AUTHORIZATION=f"Bearer {TOKEN}")[2] == b"ci OPERATOR"
    assert ask(guard, **{CERTIFICATE: b"CN=app"})[2] == b"CN=app VIEWER"
    assert ask(guard, **{CERTIFICATE: b"CN=stranger"})[0] == 401


def test_a_client_cannot_say_itself_who_it_is() -> None:
    forged = {"kafkalite.user": users().by_certificate("CN=app"), "HTTP_KAFKALITE_USER": "alice"}
    assert ask(guarded(), HTTP_HOST="localhost", **forged)[2] == b""
    assert ask(guarded(SignIn(users())), **forged)[0] == 401


def test_a_host_is_anything_once_people_sign_in() -> None:
    assert ask(guarded(SignIn(users())), HTTP_HOST="proxy.example", HTTP_AUTHORIZATION=f"Bearer {TOKEN}")[0] == 200


def test_guessing_is_stopped_for_a_while_and_for_its_address_alone() -> None:
    clock = Clock()
    guard = guarded(SignIn(users(), clock=clock))
    for _ in range(FAILURES_MAX):
        assert ask(guard, HTTP_AUTHORIZATION="Bearer wrong")[0] == 401
    assert ask(guard, HTTP_AUTHORIZATION=f"Bearer {TOKEN}")[0] == 429
    assert ask(guard, HTTP_AUTHORIZATION=f"Bearer {TOKEN}", REMOTE_ADDR="192.0.2.9")[0] == 200
    clock.now = FAILURES_WITHIN_S + 1
    assert ask(guard, HTTP_AUTHORIZATION=f"Bearer {TOKEN}")[0] == 200


def test_what_is_bound_to_this_machine_is_told_apart() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8")] == [True] * 4
    assert [is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "example")] == [False] * 5
