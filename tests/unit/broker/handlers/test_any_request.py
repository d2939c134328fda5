"""For any decodable request the handler answers: no exception, and a response that fits the version.

Random requests from the field tables, and the same with names, ids and indexes that exist, so that they get past the
first check. An exception here would close the client's connection.
"""

import random

import pytest

from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode, MalformedRequest
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.schema import covers
from tests.kit.harness.handler_calls import HandlerCalls
from tests.kit.harness.named_case import named_case
from tests.kit.harness.random_messages import REQUEST, MessageMaker
from tests.kit.harness.samples import sample

ROWS = [row for row in table.ROWS if row.key not in (api.PRODUCE, api.FETCH)]
CASES = [(row.key, version) for row in ROWS for version in range(row.oldest, row.newest + 1)]
ACLS = (api.DESCRIBE_ACLS, api.CREATE_ACLS, api.DELETE_ACLS)
SEEDS = range(40)
NAMES = (
    "orders",
    "logs",
    "missing",
    "",
    "a b",
    "\0",
    "orders\0",
    "127.0.0.1\0",
    "/\0",
    "(",
    "x" * 300,
    "7",
    "retention.ms",
    "cleanup.policy",
    "kafkalite",
    "__consumer_offsets",
)
NUMBERS = (-6, -3, -2, -1, 0, 1, 2, 3, 4, 7, 8, 32, 2**31 - 1)


def make_plausible(message, version, rng, ids):
    """Puts values that mean something here into the fields of a random request."""
    for name, kind, versions, *_ in message.FIELDS:
        if not covers(versions, version):
            continue
        value = getattr(message, name)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "FIELDS"):
                make_plausible(item, version, rng, ids)
        if rng.random() < 0.3 or value is None:
            continue
        if kind == "string":
            setattr(message, name, rng.choice(NAMES))
        elif kind == "[]string":
            setattr(message, name, [rng.choice(NAMES) for _ in value])
        elif kind == "uuid":
            setattr(message, name, rng.choice(ids))
        elif kind == "int8":
            setattr(message, name, rng.choice((0, 1, 2, 3, 4, 8)))
        elif kind in ("int32", "int64"):
            setattr(message, name, rng.choice(NUMBERS))


@pytest.mark.parametrize("plausible", sample([True, False], 1), ids=["plausible", "random"])
def test_request_is_answered(plausible):
    assert CASES
    for case in CASES:
        with named_case(f"{api.APIS[case[0]].name}-v{case[1]}"):
            assert_answered(case, plausible)


def assert_answered(case, plausible):
    broker = HandlerCalls(max_partitions="200")
    for seed in SEEDS:
        broker.logs.topics.clear()
        broker.logs.topics_by_id.clear()
        broker.logs.create_topic("orders", 3, {})
        broker.logs.create_topic("logs", 1, {"retention.ms": "60000"})
        request = MessageMaker(seed).make(*case, REQUEST)
        if plausible:
            rng = random.Random(seed)
            make_plausible(request, case[1], rng, [bytes(16), b"\1" * 16, broker.logs.topics["orders"].id])
        try:
            response = broker.call(*case, request)
        except MalformedRequest:  # which dispatch turns into a closed connection
            assert case[0] in ACLS
            continue
        assert response is not None, f"seed {seed}"
        assert_known_codes(response)


def assert_known_codes(message):
    for name, *_ in message.FIELDS:
        value = getattr(message, name)
        if name == "error_code":
            assert ErrorCode(value) != ErrorCode.UNKNOWN_SERVER_ERROR
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "FIELDS"):
                assert_known_codes(item)
