"""The registry's interface, request by request: paths, codes and texts, on a store in memory."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.avro.schema import parse
from kafkalite.schema_registry.registry import SCHEMA_SIZE_MAX, Registry
from kafkalite.schema_registry.rest import CONTENT_TYPE, Application
from tests.kit.processes.schema_registry import MemoryStore

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
AB = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string","default":""}]}'
BAD = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


class Caller:
    """Requests without a server."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.app = Application(Registry(self.store), refresh=self.store.refresh)

    def __call__(self, method: str, path: str, body: object = None, **environ: str):
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        request = {
            "REQUEST_METHOD": method,
            "REQUEST_URI": f"{path}?{query}",
            "QUERY_STRING": query,
            "CONTENT_TYPE": CONTENT_TYPE,
            "CONTENT_LENGTH": str(len(raw)),
            "wsgi.input": io.BytesIO(raw),
            **environ,
        }
        seen = []
        answer = b"".join(
            self.app(request, lambda status, headers: seen.append((int(status.split()[0]), dict(headers))))
        )
        ((status, self.headers),) = seen
        assert int(self.headers["Content-Length"]) == len(answer) or method == "HEAD"
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer.decode()

    def register(self, subject: str, text: str, **more: object):
        return self("POST", f"/subjects/{subject}/versions", {"schema": text, **more})


@pytest.fixture
def call() -> Caller:
    return Caller()


def refused(answer, status: int, code: int, text: str) -> None:
    assert answer[0] == status, answer
    assert answer[1]["error_code"] == code
    assert text in answer[1]["message"]


def test_a_schema_has_one_id_in_every_subject(call: Caller) -> None:
    assert call.register("s", A) == (200, {"id": 1})
    assert call.register("s", A) == (200, {"id": 1})
    assert call.register("t", f" {A} ".replace(":", " : ")) == (200, {"id": 1})
    assert call.register("s", AB) == (200, {"id": 2})
    assert call("GET", "/subjects") == (200, ["s", "t"])
    assert call("GET", "/subjects?subjectPrefix=t") == (200, ["t"])
    assert call("GET", "/subjects/s/versions") == (200, [1, 2])
    assert call("GET", "/subjects/s/versions?offset=1&limit=5") == (200, [2])
    row = {"subject": "s", "version": 2, "id": 2, "schema": AB}
    for version in ("2", "latest", "-1"):
        assert call("GET", f"/subjects/s/versions/{version}") == (200, row)
    assert call("GET", "/subjects/s/versions/1/schema") == (200, json.loads(A))
    assert call("POST", "/subjects/s", {"schema": AB}) == (200, row)
    assert call("GET", "/schemas/ids/1") == (200, {"schema": A})
    assert call("GET", "/schemas/ids/1?fetchMaxId=true") == (200, {"schema": A, "maxId": 2})
    assert call("GET", "/schemas/ids/1/schema") == (200, json.loads(A))
    assert call("GET", "/schemas/ids/1/subjects") == (200, ["s", "t"])
    assert call("GET", "/schemas/ids/1/versions") == (
        200,
        [{"subject": "s", "version": 1}, {"subject": "t", "version": 1}],
    )
    assert [row["id"] for row in call("GET", "/schemas?latestOnly=true")[1]] == [2, 1]
    assert call("GET", "/schemas/types") == (200, ["AVRO"])
    assert call("GET", "/contexts") == (200, ["."])
    assert call("GET", "/") == (200, {})
    assert call("GET", "/v1/metadata/id")[0] == 200
    assert call("GET", "/v1/metadata/version")[0] == 200


def test_what_is_not_there_has_its_code(call: Caller) -> None:
    call.register("s", A)
    refused(call("GET", "/subjects/x/versions"), 404, 40401, "Subject 'x' not found.")
    refused(call("GET", "/subjects/x/versions/1"), 404, 40401, "Subject 'x' not found.")
    refused(call("GET", "/subjects/s/versions/9"), 404, 40402, "Version 9 not found.")
    refused(call("GET", "/schemas/ids/9"), 404, 40403, "Schema 9 not found")
    refused(call("GET", "/schemas/ids/9/subjects"), 404, 40403, "Schema 9 not found")
    refused(call("POST", "/subjects/x", {"schema": A}), 404, 40401, "Subject 'x' not found.")
    refused(call("POST", "/subjects/s", {"schema": AB}), 404, 40403, "Schema not found")
    refused(call("GET", "/config/s"), 404, 40408, "Subject 's' does not have subject-level compatibility configured")
    refused(call("GET", "/mode/s"), 404, 40409, "Subject 's' does not have subject-level mode configured")
    refused(call("DELETE", "/config/s"), 404, 40401, "Subject 's' not found.")
    refused(call("DELETE", "/subjects/x"), 404, 40401, "Subject 'x' not found.")
    refused(call("GET", "/nothing"), 404, 404, "HTTP 404 Not Found")
    refused(call("GET", "/schemas/ids/x"), 404, 404, "HTTP 404 Not Found")
    refused(call("GET", f"/schemas/ids/{'0' * 5000}"), 404, 404, "HTTP 404 Not Found")
    refused(call("PUT", "/subjects"), 405, 405, "HTTP 405 Method Not Allowed")


def test_what_is_not_found_is_looked_for_once_more_after_catching_up(call: Caller) -> None:
    other = Caller()
    other.register("s", A)

    def catch_up() -> None:
        for record in other.store.log:
            call.store.append(record)

    call.app.refresh = catch_up
    assert call("GET", "/schemas/ids/1") == (200, {"schema": A})
    call.app.refresh = call.store.refresh
    assert call("POST", "/subjects/s", {"schema": A})[0] == 200
    assert call.store.refresh_count == 0
    refused(call("POST", "/subjects/s", {"schema": AB}), 404, 40403, "Schema not found")
    assert call.store.refresh_count == 1


@pytest.mark.parametrize("version", ["0", "-2", "x", "1.0", "99999999999999999999"])
def test_a_version_that_is_none(call: Caller, version: str) -> None:
    call.register("s", A)
    refused(call("GET", f"/subjects/s/versions/{version}"), 422, 42202, f"The specified version '{version}' is not a")


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        (b"", 422, 422, "no body"),
        (b"{", 400, 400, "not valid JSON"),
        (b"[]", 400, 400, "not a JSON object"),
        ({}, 422, 42201, "Empty schema"),
        ({"schema": 3}, 422, 42201, "Empty schema"),
        ({"schema": "string"}, 422, 42201, "Invalid schema {subject=s,version=0,id=-1,schemaType=AVRO,references=[]"),
        ({"schema": '"text"'}, 422, 42201, "of type AVRO, details: undefined name: text"),
        ({"schema": "{}", "schemaType": "JSON"}, 422, 42201, "is not supported; only AVRO is"),
        ({"schema": A, "schemaType": 3}, 400, 400, "schemaType is not a string"),
        ({"schema": A, "what": 3}, 422, 422, "Unrecognized field: what"),
        ({"schema": A, "id": 7}, 422, 42205, "not in import mode"),
        ({"schema": A, "references": [{"name": "X", "subject": "y", "version": 1}]}, 422, 42201, "No schema reference"),
        ({"schema": A, "references": 3}, 400, 400, "references"),
        ({"schema": A, "ruleSet": {"domainRules": []}}, 422, 42201, "ruleSet is not supported"),
        ({"schema": '"string"' + " " * SCHEMA_SIZE_MAX}, 422, 42209, "bytes"),
        ({"schema": '{"type":"fixed","name":"F","size":1,"doc":"\ud800"}'}, 422, 42201, "surrogates"),
    ],
)
def test_what_cannot_be_registered(call: Caller, body: object, status: int, code: int, text: str) -> None:
    refused(call("POST", "/subjects/s/versions", body), status, code, text)
    assert call.store.log == []


def test_attributes_of_newer_clients_pass_with_their_header(call: Caller) -> None:
    body = {"schema": A, "what": 3}
    lenient = {"HTTP_CONFLUENT_ACCEPT_UNKNOWN_PROPERTIES": "true"}
    assert call("POST", "/subjects/s/versions", body, **lenient) == (200, {"id": 1})


@pytest.mark.parametrize("subject", ["%01", "__GLOBAL", ":.context:s", "x" * 1001])
def test_a_subject_that_is_none(call: Caller, subject: str) -> None:
    refused(call.register(subject, A), 422, 42208, "is not a valid subject")


def test_a_subject_may_hold_what_a_path_may_not(call: Caller) -> None:
    assert call.register("a%2Fb%20%C3%BC", A) == (200, {"id": 1})
    assert call("GET", "/subjects") == (200, ["a/b ü"])
    assert call("GET", "/subjects/a%2Fb%20%C3%BC/versions/1")[1]["subject"] == "a/b ü"


def test_content_types(call: Caller) -> None:
    call("GET", "/subjects")
    assert call.headers["Content-Type"] == CONTENT_TYPE
    call("GET", "/subjects", HTTP_ACCEPT="text/html, application/json;q=0.5")
    assert call.headers["Content-Type"] == "application/json"
    call("GET", "/subjects", HTTP_ACCEPT="*/*")
    assert call.headers["Content-Type"] == CONTENT_TYPE
    refused(call("GET", "/subjects", HTTP_ACCEPT="text/html"), 406, 406, "HTTP 406")
    body = {"schema": A}
    refused(call("POST", "/subjects/s/versions", body, CONTENT_TYPE="text/plain"), 415, 415, "HTTP 415")
    assert call("POST", "/subjects/s/versions", body, CONTENT_TYPE="application/json; charset=utf-8")[0] == 200
    assert call("HEAD", "/subjects") == (200, "")


def test_incompatible_schemas_are_refused_with_reasons(call: Caller) -> None:
    call.register("s", A)
    refused(
        call.register("s", BAD), 409, 409, 'incompatible with an earlier schema for subject "s", details: [{errorType'
    )
    path = "/compatibility/subjects/s/versions/latest"
    assert call("POST", path, {"schema": BAD}) == (200, {"is_compatible": False})
    assert call("POST", path, {"schema": AB}) == (200, {"is_compatible": True})
    answer = call("POST", path + "?verbose=true", {"schema": BAD})[1]
    assert answer["is_compatible"] is False
    assert "TYPE_MISMATCH" in answer["messages"][0]
    assert call("POST", path + "?verbose=true", {"schema": AB})[1] == {"is_compatible": True, "messages": []}
    assert call("POST", "/compatibility/subjects/s/versions", {"schema": BAD})[1] == {"is_compatible": False}
    assert call("POST", "/compatibility/subjects/new/versions/latest", {"schema": BAD})[1] == {"is_compatible": True}
    refused(call("POST", "/compatibility/subjects/s/versions/9", {"schema": A}), 404, 40402, "Version 9 not found.")
    refused(call("POST", path, {"schema": "x"}), 422, 42201, "Invalid schema")


def test_levels_are_set_for_all_and_for_one(call: Caller) -> None:
    assert call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call("PUT", "/config", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert call("GET", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert call("PUT", "/config/s", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert call("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert call("GET", "/config/t?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    call.register("s", A)
    assert call.register("s", BAD)[0] == 200
    assert call("DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert call.register("s", A) == (200, {"id": 1})  # it is there, so nothing is compared
    assert call("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    for body in ({"compatibility": "SIDEWARD"}, {"compatibility": None}, {}):
        refused(
            call("PUT", "/config", body), 422, 42203, "Invalid compatibility level. Valid values are none, backward"
        )


def test_modes(call: Caller) -> None:
    assert call("GET", "/mode") == (200, {"mode": "READWRITE"})
    call.register("s", A)
    assert call("PUT", "/mode/s", {"mode": "readonly"}) == (200, {"mode": "READONLY"})
    refused(call.register("s", AB), 422, 42205, "Subject s is in read-only mode")
    refused(call("DELETE", "/subjects/s"), 422, 42205, "read-only")
    assert call("POST", "/subjects/s", {"schema": A})[0] == 200
    assert call("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert call.register("s", AB) == (200, {"id": 2})
    refused(call("PUT", "/mode/s", {"mode": "IMPORT"}), 422, 42205, "Cannot import since found existing subjects")
    refused(call("PUT", "/mode", {"mode": "x"}), 422, 42204, "Invalid mode")
    assert call("PUT", "/mode/t", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert call.register("t", AB, id=2, version=7) == (200, {"id": 2})
    assert call("GET", "/subjects/t/versions") == (200, [7])
    refused(call.register("t", BAD, id=1), 422, 42205, "Overwrite new schema with id 1 is not permitted.")
    refused(call.register("t", BAD), 422, 42205, "in import mode")
    assert call.register("t", BAD, id=50)[0] == 200
    assert call.register("new", '"string"') == (200, {"id": 51})


def test_deleting_softly_and_for_good(call: Caller) -> None:
    call.register("s", A)
    call.register("s", AB)
    refused(call("DELETE", "/subjects/s?permanent=true"), 404, 40405, "was not deleted first")
    refused(call("DELETE", "/subjects/s/versions/1?permanent=true"), 404, 40407, "Version 1 was not deleted first")
    assert call("DELETE", "/subjects/s/versions/1") == (200, 1)
    refused(call("DELETE", "/subjects/s/versions/1"), 404, 40406, "Version 1 was soft deleted.Set permanent=true")
    assert call("GET", "/subjects/s/versions") == (200, [2])
    assert call("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert call("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    refused(call("GET", "/subjects/s/versions/1"), 404, 40402, "Version 1 not found.")
    assert call("GET", "/subjects/s/versions/1?deleted=true")[1]["id"] == 1
    assert call("GET", "/schemas/ids/1") == (200, {"schema": A})
    assert call("GET", "/schemas/ids/1/subjects") == (200, [])
    assert call("GET", "/schemas/ids/1/subjects?deleted=true") == (200, ["s"])
    assert call("DELETE", "/subjects/s/versions/latest") == (200, 2)
    refused(call("DELETE", "/subjects/s"), 404, 40404, "Subject 's' was soft deleted.Set permanent=true")
    assert call("GET", "/subjects") == (200, [])
    assert call("GET", "/subjects?deleted=true") == (200, ["s"])
    assert call("DELETE", "/subjects/s?permanent=true") == (200, [1, 2])
    assert call("GET", "/subjects?deleted=true") == (200, [])
    refused(call("GET", "/schemas/ids/1"), 404, 40403, "Schema 1 not found")


def test_what_is_registered_again_has_its_id_and_a_new_version(call: Caller) -> None:
    call.register("s", A)
    assert call("DELETE", "/subjects/s") == (200, [1])
    assert call.register("s", A) == (200, {"id": 1})
    assert call("GET", "/subjects/s/versions") == (200, [2])


def test_no_id_is_given_twice_even_after_a_restart(call: Caller) -> None:
    call.register("s", A)
    call.register("t", '"string"')
    call("DELETE", "/subjects/t")
    call("DELETE", "/subjects/t?permanent=true")
    again = Caller(call.store.compacted())
    assert again.register("u", '"bytes"') == (200, {"id": 3})


def test_references(call: Caller) -> None:
    customer = '{"type":"record","name":"Customer","namespace":"shop","fields":[]}'
    order = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"c","type":"Customer"}]}'
    reference = {"name": "shop.Customer", "subject": "customer", "version": 1}
    refused(call.register("order", order), 422, 42201, "undefined name: shop.Customer")
    call.register("customer", customer)
    assert call.register("order", order, references=[reference]) == (200, {"id": 2})
    assert call("GET", "/schemas/ids/2") == (200, {"schema": order, "references": [reference]})
    assert call("GET", "/subjects/customer/versions/1/referencedby") == (200, [2])
    refused(call("DELETE", "/subjects/customer"), 422, 42206, "{magic=1,keytype=SCHEMA,subject=customer,version=1}.")
    refused(call("DELETE", "/subjects/customer/versions/1"), 422, 42206, "One or more references exist")
    wrong = {**reference, "name": "shop.Client"}
    refused(call.register("x", order, references=[wrong]), 422, 42201, "does not define this type")
    call("DELETE", "/subjects/order")
    assert call("DELETE", "/subjects/customer") == (200, [1])


def test_what_is_referred_to_by_many_is_parsed_once(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(
        "kafkalite.schema_registry.state.parse", lambda text, named: parsed.append(text) or parse(text, named)
    )
    call.register("t0", '{"type":"record","name":"N0","fields":[]}')
    for level in range(1, 11):
        text = f'{{"type":"record","name":"N{level}","fields":[{{"name":"a","type":"N{level - 1}"}}]}}'
        reference = {"name": f"N{level - 1}", "subject": f"t{level - 1}", "version": 1}
        parsed.clear()
        assert call.register(f"t{level}", text, references=[reference] * 10) == (200, {"id": level + 1})
        assert len(parsed) == level


def test_normalizing(call: Caller) -> None:
    first = '{"type":"fixed","name":"F","size":1,"b":1,"a":2}'
    second = '{"type":"fixed","name":"F","size":1,"a":2,"b":1}'
    assert call("POST", "/subjects/s/versions?normalize=true", {"schema": first}) == (200, {"id": 1})
    assert call("POST", "/subjects/s/versions?normalize=True", {"schema": second}) == (200, {"id": 1})
    assert call("POST", "/subjects/s?normalize=true", {"schema": first})[0] == 200
    refused(call("POST", "/subjects/s", {"schema": first}), 404, 40403, "Schema not found")


REQUESTS = st.one_of(
    st.tuples(st.just("register"), st.sampled_from("st"), st.sampled_from([A, AB, BAD, '"int"'])),
    st.tuples(st.just("delete"), st.sampled_from("st"), st.booleans()),
    st.tuples(st.just("version"), st.sampled_from("st"), st.tuples(st.integers(1, 3), st.booleans())),
    st.tuples(st.just("level"), st.sampled_from("st"), st.sampled_from(["NONE", "FULL", None])),
)


@settings(max_examples=100)
@given(st.lists(REQUESTS, max_size=25))
def test_the_topic_says_what_the_registry_does_whole_or_compacted(requests) -> None:
    call = Caller()
    call("PUT", "/config", {"compatibility": "NONE"})
    ids: dict[int, str] = {}
    for kind, subject, value in requests:
        if kind == "register":
            status, answer = call.register(subject, value)
            if status == 200:
                assert ids.setdefault(answer["id"], value) == value
        elif kind == "delete":
            call("DELETE", f"/subjects/{subject}?permanent={value}".lower())
        elif kind == "version":
            call("DELETE", f"/subjects/{subject}/versions/{value[0]}?permanent={value[1]}".lower())
        elif value is None:
            call("DELETE", f"/config/{subject}")
        else:
            call("PUT", f"/config/{subject}", {"compatibility": value})
    whole, compacted = MemoryStore(call.store.log).state, call.store.compacted().state
    for state in (whole, compacted):
        assert state.subjects == call.store.state.subjects
        assert state.levels == call.store.state.levels
        assert state.id_max == call.store.state.id_max
