"""The answer of a request that fails as a whole: for every API and version, with the error wherever it has room."""

from importlib import import_module

import pytest

from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.error_answers import LISTS, MetadataView, error_answer
from kafkalite.errors import ErrorCode
from kafkalite.model import Endpoint
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api
from tests.kit.harness.named_case import named_case

CODE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
TEXT = "why"
VIEW = MetadataView(7, "cluster", Endpoint("KAFKA", "host", 9), ["one", "two"])
EVERY = [(row.key, version) for row in table.ROWS for version in range(row.oldest, row.newest + 1)]
SCALARS = {"string": "t", "int32": 5, "int16": 3, "int8": 1, "int64": 4, "uuid": bytes(range(16)), "bool": True}


def namespace_of(key):
    return vars(import_module(f"kafkalite.wire.protocol.messages.{api.APIS[key].module}"))


def sample(kind, namespace):
    """A message whose lists have one item each."""
    made = kind()
    for name, type_, *_ in kind.FIELDS:
        base = type_.removeprefix("[]")
        value = sample(namespace[base], namespace) if base in namespace and base[0].isupper() else SCALARS.get(base)
        if value is None:
            continue
        if type_.startswith("[]"):
            setattr(made, name, [value])
        elif base in {"string", "uuid"} or name in {"index", "partition_index", "partition"}:
            setattr(made, name, value)
    return made


def request_of(key, version):
    """Return a request as decoded from a client of that version: missing fields have their defaults."""
    namespace = namespace_of(key)
    made = sample(namespace[f"{api.APIS[key].name}Request"], namespace)
    for name, _, versions, *_ in type(made).FIELDS:
        if version not in covered(versions, version):
            setattr(made, name, getattr(type(made)(), name))
    if key == api.PRODUCE:
        made.acks = -1
    return made


def covered(versions, version):
    low, _, high = versions.partition("-")
    return range(int(low.rstrip("+")), (int(high) if high else version if versions.endswith("+") else int(low)) + 1)


def codes(message):
    """Every error code in a message."""
    found = []
    for name, type_, *_ in type(message).FIELDS:
        value = getattr(message, name)
        if name in {"error_code", "partition_error_code"}:
            found.append(value)
        elif isinstance(value, list) and type_[2].isupper():
            found += [code for item in value for code in codes(item)]
    return found


def test_answer_is_one_that_a_client_reads_an_error_from():
    assert EVERY
    for key, version in EVERY:
        with named_case(f"{api.APIS[key].name}-v{version}"):
            answer = error_answer(key, version, request_of(key, version), CODE, TEXT, VIEW)
            read = protocol.decode_response(key, version, protocol.encode_response(key, version, answer))
            assert CODE in codes(read)


@pytest.mark.parametrize("key", sorted(LISTS), ids=lambda key: api.APIS[key].name)
def test_lists_of_the_table_are_there(key):
    namespace = namespace_of(key)
    fields = {row[0] for kind in namespace.values() if hasattr(kind, "FIELDS") for row in kind.FIELDS}
    named = {name for name, sources in LISTS[key].items() for name in (name, *sources)}
    assert named - fields <= {"partitions", "partition_indexes"}


def test_items_keep_what_names_them():
    request = request_of(api.FETCH, 12)
    (topic,) = error_answer(api.FETCH, 12, request, CODE, TEXT, VIEW).responses
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition_index, partition.error_code, partition.high_watermark) == (
        "t",
        5,
        CODE,
        -1,
    )
    (found,) = error_answer(api.FIND_COORDINATOR, 4, request_of(api.FIND_COORDINATOR, 4), CODE, TEXT, VIEW).coordinators
    assert (found.key, found.node_id, found.error_code) == ("t", -1, CODE)
    (found,) = error_answer(api.OFFSET_FETCH, 8, request_of(api.OFFSET_FETCH, 8), CODE, TEXT, VIEW).groups
    assert (found.group_id, found.error_code, found.topics[0].partitions[0].partition_index) == ("t", CODE, 5)
    (topic,) = error_answer(api.PRODUCE, 13, request_of(api.PRODUCE, 13), CODE, TEXT, VIEW).responses
    assert (topic.topic_id, topic.partition_responses[0].base_offset) == (SCALARS["uuid"], -1)


def test_metadata_lists_the_broker_despite_the_error():
    request = namespace_of(api.METADATA)["MetadataRequest"](topics=None)
    answer = error_answer(api.METADATA, 9, request, CODE, TEXT, VIEW)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(7, "host", 9)]
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("one", CODE), ("two", CODE)]
    assert answer.error_code == 0


def test_produce_without_acknowledgement_has_no_answer():
    request = namespace_of(api.PRODUCE)["ProduceRequest"](acks=0)
    assert error_answer(api.PRODUCE, 9, request, CODE, TEXT, VIEW) is None
