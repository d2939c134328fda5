"""Form bodies, permissions, jobs that end, and bytes that survive a form unchanged."""

import io
import json
import threading
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.audit import Audit, AuditEntry
from kafkalite.console.console_roles import Access, ForbiddenError, require_own
from kafkalite.console.forms import BODY_MAX, FORM_FIELDS_MAX, body_pairs
from kafkalite.console.jobs import FILES_MAX, KEPT_MAX, KIND_MAX, RUNNING_MAX, Job, Jobs
from kafkalite.console.requests import BadRequestError, BusyError, NotFoundError, Request
from kafkalite.console.sending import headers_text, parse_headers, plain_text
from kafkalite.web.users import Role

FORM = "application/x-www-form-urlencoded"
NOBODY = AuditEntry("", "admin", "", "test", (), {})


def pairs(raw: bytes, kind: str = FORM) -> list[tuple[str, str]]:
    return body_pairs({"CONTENT_TYPE": kind, "CONTENT_LENGTH": str(len(raw)), "wsgi.input": io.BytesIO(raw)})


def test_a_form_and_json_give_the_same_fields() -> None:
    wanted = [("a", "1"), ("a", "ü\n2"), ("b", "")]
    assert pairs(b"a=1&a=%C3%BC%0D%0A2&b=") == wanted
    assert pairs(json.dumps({"a": [1, "ü\n2"], "b": False, "c": None}).encode(), "application/json; x=y") == wanted


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"a=%ff", FORM),
        (b"a=\xff", FORM),
        (b"&".join(b"a=1" for _ in range(FORM_FIELDS_MAX + 1)), FORM),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"a": {}}', "application/json"),
        (b'{"a": 1.5}', "application/json"),
        (rb'{"a": "\ud800"}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (json.dumps({"a": ["1"] * (FORM_FIELDS_MAX + 1)}).encode(), "application/json"),
        (b"a=1", "text/plain"),
        (b"a=1", ""),
    ],
)
def test_a_body_that_is_none_is_refused(raw: bytes, kind: str) -> None:
    with pytest.raises(BadRequestError):
        pairs(raw, kind)


@pytest.mark.parametrize("length", ["-1", "x", str(BODY_MAX + 1), "9" * 20])
def test_a_body_too_large_is_not_read(length: str) -> None:
    with pytest.raises(BadRequestError):
        body_pairs({"CONTENT_TYPE": FORM, "CONTENT_LENGTH": length})


@pytest.mark.parametrize(
    ("role", "writes", "operates", "administers"),
    [
        (Role.VIEWER, True, False, False),
        (Role.OPERATOR, True, True, False),
        (Role.ADMIN, True, True, True),
        (Role.ADMIN, False, False, False),
    ],
)
def test_who_may_do_what(role: Role, writes: bool, operates: bool, administers: bool) -> None:
    access = Access("ann", role, writes)
    access.require(Role.VIEWER)
    assert (access.may(Role.OPERATOR), access.may(Role.ADMIN)) == (operates, administers)
    if not administers:
        with pytest.raises(ForbiddenError):
            access.require(Role.ADMIN)


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        ({"HTTP_SEC_FETCH_SITE": "same-origin"}, True),
        ({"HTTP_SEC_FETCH_SITE": "same-site"}, False),
        ({"HTTP_SEC_FETCH_SITE": "cross-site"}, False),
        ({"HTTP_SEC_FETCH_SITE": "none"}, False),
        ({"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_ORIGIN": "http://here:1"}, False),
        ({"HTTP_ORIGIN": "http://here:1"}, True),
        ({"HTTP_ORIGIN": "https://here:1"}, False),
        ({"HTTP_ORIGIN": "http://here"}, False),
        ({"HTTP_ORIGIN": "null"}, False),
        ({}, False),
    ],
)
def test_a_change_comes_from_a_page_of_this_console(headers: dict[str, str], fits: bool) -> None:
    environ = {"HTTP_HOST": "here:1", "wsgi.url_scheme": "http", **headers}
    if fits:
        require_own(environ)
    else:
        with pytest.raises(ForbiddenError):
            require_own(environ)


def test_what_is_to_go_has_to_be_named() -> None:
    for typed in ("", "order", "orders2"):
        with pytest.raises(BadRequestError, match="type orders"):
            Request({}, (), None, pairs=[("confirm", typed)]).require_name("orders")  # type: ignore[arg-type]
    Request({}, (), None, pairs=[("confirm", " orders ")]).require_name("orders")  # type: ignore[arg-type]


HEADERS = st.lists(st.tuples(st.text(), st.none() | st.binary() | st.text().map(lambda text: text.encode())))


@given(HEADERS.filter(lambda rows: len(rows) <= 100))
def test_headers_come_back_from_a_form_as_they_were(rows: list[tuple[str, bytes | None]]) -> None:
    given_rows = tuple(rows)
    text = headers_text(given_rows)
    assert plain_text(text.encode()) == text
    assert parse_headers(text) == given_rows


@pytest.mark.parametrize(
    "text", ["no colon", ": no name", "[1]", '[["a"]]', '[["a", {"hex": "0g"}]]', "[" * 90_000, "[", "a:b\n" * 101]
)
def test_headers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_headers(text)


class Pool:
    """Clients without a cluster."""

    @contextmanager
    def taken(self) -> Any:
        class Seat:
            client = None

        yield Seat()


def waited(job: Job) -> Job:
    for thread in threading.enumerate():
        if thread.name == f"job-{job.id}":
            thread.join(60)
    return job


def test_a_job_ends_as_done_failed_or_cancelled() -> None:
    jobs = Jobs(Pool(), Audit())  # type: ignore[arg-type]
    gate = threading.Event()

    def endless(_client: Any, job: Job) -> dict[str, Any]:
        job.path.write_text("half")
        while True:
            gate.wait(0.01)
            job.go_on(3)

    def wrong(_client: Any, _job: Job) -> dict[str, Any]:
        raise ValueError("because")

    def broken(_client: Any, _job: Job) -> dict[str, Any]:
        raise ZeroDivisionError

    done = waited(jobs.start("k", "t", NOBODY, lambda _client, job: {"got": job.kind}))
    assert (done.state, done.result, done.ended > 0) == ("done", {"got": "k"}, True)
    assert (waited(job := jobs.start("k", "t", NOBODY, wrong)).state, job.why) == ("failed", "because")
    assert "log of the console" in waited(jobs.start("k", "t", NOBODY, broken)).why
    running = [jobs.start("k", "t", NOBODY, endless) for _ in range(KIND_MAX)]
    with pytest.raises(BusyError):
        jobs.start("k", "t", NOBODY, endless)
    running += [jobs.start("other", "t", NOBODY, endless) for _ in range(RUNNING_MAX - KIND_MAX)]
    with pytest.raises(BusyError):
        jobs.start("third", "t", NOBODY, endless)
    running[0].cancel()
    assert (waited(running[0]).state, running[0].done, running[0].path.exists()) == ("cancelled", 3, False)
    jobs.close()
    assert {job.state for job in running} == {"cancelled"}
    assert not running[0].path.parent.exists()
    with pytest.raises(BusyError):
        jobs.start("k", "t", NOBODY, wrong)


def test_jobs_and_their_files_are_kept_in_small_number() -> None:
    jobs = Jobs(Pool(), Audit())  # type: ignore[arg-type]

    def file_maker(_client: Any, job: Job) -> dict[str, Any]:
        job.file_name = "x"
        job.path.write_text("x")
        return {}

    made = [waited(jobs.start("k", "t", NOBODY, file_maker)) for _ in range(KEPT_MAX + 5)]
    kept = jobs.all()
    assert KEPT_MAX <= len(kept) <= KEPT_MAX + 1
    assert sum(job.path.exists() for job in made) <= FILES_MAX + 1
    assert sum(bool(job.row()["file"]) for job in kept) <= FILES_MAX + 1
    with pytest.raises(NotFoundError):
        jobs.find(made[0].id)
    assert jobs.find(made[-1].id) is made[-1]
    jobs.close()
