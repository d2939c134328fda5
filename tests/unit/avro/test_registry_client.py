"""The registry's client against a server that answers what a test says: retries, other URLs, the cache, bad answers."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kafkalite.avro import RegistryClient, RegistryRefused, RegistryUnreachable, SchemaError
from tests.kit.fakes.raw_http import DRIPS, RawHttp, dripping

INT = {"schema": '"int"'}


class Script:
    """Answers in turn; the last one stays. Each is (status, JSON or bytes), or None: the connection is dropped."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, object]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                script.seen.append((f"{self.command} {self.path}", json.loads(body) if body else None))
                answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                if answer is None:
                    self.close_connection = True
                    return
                status, value = answer
                raw = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = answer  # noqa: N815  # http.server's names

            def log_message(self, *arguments: object) -> None:
                """Nothing to stderr."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self):
        self.thread.start()
        self.client = RegistryClient(f"http://127.0.0.1:{self.server.server_port}/", retry_timeout_s=5)
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_an_id_is_requested_once() -> None:
    with Script((200, INT)) as script:
        assert script.client.schema(7) is script.client.schema(7)
        assert script.seen == [("GET /schemas/ids/7", None)]


def test_an_unknown_id_is_not_requested_again_at_once() -> None:
    with Script((404, {"error_code": 40403, "message": "Schema 7 not found"}), (200, INT)) as script:
        for _ in range(3):
            with pytest.raises(RegistryRefused, match="Schema 7 not found") as refused:
                script.client.schema(7)
            assert (refused.value.status, refused.value.code) == (404, 40403)
        assert len(script.seen) == 1
        script.client._unknown_age_s = 0.0
        assert script.client.schema(7).text == '"int"'


def test_what_passes_is_asked_again() -> None:
    with Script(None, (500, {"error_code": 50001, "message": "x"}), (503, b"<html>"), (200, INT)) as script:
        assert script.client.schema(7).text == '"int"'
        assert len(script.seen) == 4


def test_an_idle_connection_that_was_closed_is_no_failure() -> None:
    with Script((200, INT), None, (200, INT)) as script:
        script.client.schema(1)
        script.client.schema(2)
        assert [path for path, _ in script.seen] == ["GET /schemas/ids/1", "GET /schemas/ids/2", "GET /schemas/ids/2"]


def test_another_url_is_tried_and_nobody_is_said() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, not listening: refused
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Script((200, INT)) as script, RegistryClient([dead, script.client.urls[0]]) as client:
            assert client.schema(7).text == '"int"'
        with RegistryClient(dead, retry_timeout_s=0.1) as client, pytest.raises(RegistryUnreachable, match="refused"):
            client.schema(7)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((200, {"schema": "int"}), SchemaError, "not valid JSON"),
        ((200, {"schema": "x", "schemaType": "PROTOBUF"}), SchemaError, "has type PROTOBUF; expected AVRO"),
        ((409, {"error_code": 409, "message": "incompatible"}), RegistryRefused, "incompatible"),
        ((404, b"nothing"), RegistryRefused, "HTTP status 404"),
    ],
)
def test_refusals_and_other_schemas(answer, error, text: str) -> None:
    with Script(answer) as script, pytest.raises(error, match=text):
        script.client.schema(7)


def test_a_server_that_is_no_registry() -> None:
    with Script((200, b"<html>")) as script:
        script.client._retry_timeout_s = 0.1
        with pytest.raises(RegistryUnreachable, match="is this a schema registry"):
            script.client.schema(7)


def test_registering_and_references() -> None:
    reference = {"name": "n.C", "subject": "c/d", "version": 3}
    order = {"type": "record", "name": "O", "namespace": "n", "fields": [{"name": "c", "type": "C"}]}
    customer = {"type": "fixed", "name": "n.C", "size": 1}
    answers = [
        (200, {"id": 4}),
        (200, {"id": 4}),
        (200, {"schema": json.dumps(order), "references": [reference]}),
        (200, {"schema": json.dumps(customer)}),
        (200, {"id": 9, "version": 2, "schema": '"int"'}),
    ]
    with Script(*answers) as script:
        assert script.client.register("a b", '"int"', [reference]) == 4
        assert script.client.look_up("s", '"int"') == 4
        assert script.client.schema(4).root.fields[0].type.size == 1
        assert script.client.latest("s")[:2] == (9, 2)
        assert script.seen == [
            ("POST /subjects/a%20b/versions", {"schema": '"int"', "references": [reference]}),
            ("POST /subjects/s", {"schema": '"int"'}),
            ("GET /schemas/ids/4", None),
            ("GET /subjects/c%2Fd/versions/3?deleted=true", None),
            ("GET /subjects/s/versions/latest", None),
        ]


def test_a_shared_reference_is_requested_once() -> None:
    reference = {"name": "C", "subject": "c", "version": 3}
    answers = [(200, {**INT, "references": [reference, reference]}), (200, {"schema": '"long"'})]
    with Script(*answers) as script:
        assert script.client.schema(4).root.kind == "int"
        assert [path for path, _ in script.seen] == ["GET /schemas/ids/4", "GET /subjects/c/versions/3?deleted=true"]


def test_an_impossible_id_is_not_requested() -> None:
    with Script((200, INT)) as script, pytest.raises(RegistryRefused, match="40403"):
        script.client.schema(2**31)
    assert script.seen == []


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8081", "ftp://x", "http://", "http://me:s3cret\uff03@x", "http://me:s3cret#@x"]
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="not a schema registry URL") as refusal:
        RegistryClient(url)
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(("first", "drop"), DRIPS)
def test_an_answer_that_drips_is_over_at_its_time(first: bytes, drop: bytes) -> None:
    with RawHttp(dripping(first, drop)) as server:
        client = RegistryClient(server.url, timeout_s=0.5, retry_timeout_s=0.0)
        with client, pytest.raises(RegistryUnreachable):
            client.schema(7)
    assert len(server.requests) == 1
