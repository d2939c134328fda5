"""JSON Patch by the cases of RFC 6902, appendix A, and what does not fit."""

import json

import pytest

from kafkalite.failures.edits import NotEdited, function_edit, parse_patch, patch_edit, patched
from kafkalite.failures.events import Message


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        ({"foo": [1]}, [{"op": "copy", "from": "/foo", "path": "/bar"}], {"foo": [1], "bar": [1]}),
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": 1}, [{"op": "replace", "path": "", "value": [2]}], [2]),
        ({"foo": None}, [{"op": "add", "path": "/foo", "value": 1}], {"foo": 1}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a": [1, {"b": 10}]}, [{"op": "test", "path": "", "value": {"a": [1.0, {"b": 1e1}]}}], {"a": [1, {"b": 10}]}),
    ],
)
def test_operations(before: object, patch: list[object], after: object) -> None:
    original = json.dumps(before)
    assert patched(before, parse_patch(json.dumps(patch))) == after
    assert json.dumps(before) == original


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/baz", "value": "bar"}],
        [{"op": "add", "path": "/no/such", "value": 1}],
        [{"op": "remove", "path": "/nothing"}],
        [{"op": "add", "path": "/list/3", "value": 1}],
        [{"op": "replace", "path": "/list/01", "value": 1}],
        [{"op": "add", "path": "/baz/deeper", "value": 1}],
        [{"op": "test", "path": "/yes", "value": 1}],
        [{"op": "test", "path": "", "value": {"baz": "qux", "list": [True, 2], "yes": True}}],
        [{"op": "test", "path": "", "value": {"baz": "qux", "list": [1, 2], "yes": 1}}],
        [{"op": "test", "path": "/list", "value": [1, 2, 3]}],
        [{"op": "test", "path": "/list", "value": [1, "2"]}],
        [{"op": "remove", "path": ""}],
        [{"op": "remove", "path": "/list/-"}],
    ],
)
def test_what_does_not_fit_changes_nothing(patch: list[object]) -> None:
    document = {"baz": "qux", "list": [1, 2], "yes": True}
    with pytest.raises(NotEdited):
        patched(document, parse_patch(json.dumps(patch)))
    assert document == {"baz": "qux", "list": [1, 2], "yes": True}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        '[{"op": "spam", "path": "/a"}]',
        '[{"op": "add", "path": "/a"}]',
        '[{"op": "remove", "path": "a"}]',
        "[",
        '[{"op": [], "path": "/a"}]',
        '[{"op": "adds", "path": "/a", "value": "hidden"}]',
        pytest.param("[" * 200_000, id="deep"),
    ],
)
def test_what_is_no_patch_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the sentences differ
        parse_patch(text)
    assert "hidden" not in str(refusal.value), "the console's audit stores the sentence"


@pytest.mark.parametrize("depth", [900, 200_000])
def test_a_value_that_is_nested_too_deeply_is_one_that_does_not_fit(depth: int) -> None:
    edit = patch_edit(parse_patch('[{"op": "add", "path": "/-", "value": 2}]'))
    with pytest.raises(NotEdited, match="dlq-0-7 is nested too deeply"):
        edit(Message("dlq", 0, 7, 0, b"k", b"[" * depth + b"]" * depth))


def test_a_number_alone_may_be_written_in_another_way() -> None:
    edit = patch_edit(parse_patch('[{"op": "replace", "path": "", "value": 1.0}]'))
    assert edit(Message("dlq", 0, 7, 0, b"k", b"1")).value == b"1.0"


def test_half_of_a_surrogate_pair_stays_what_it_was() -> None:
    edit = patch_edit(parse_patch('[{"op": "replace", "path": "/b", "value": 2}]'))
    assert edit(Message("dlq", 0, 7, 0, b"k", b'{"a": "\\ud83d", "b": 1}')).value == b'{"a":"\\ud83d","b":2}'


def test_values_are_edited() -> None:
    message = Message("dlq", 0, 7, 0, b"k", b'{"a": "\xc3\xa9", "b": 1}')
    edit = patch_edit(parse_patch('[{"op": "replace", "path": "/b", "value": 2}]'))
    assert edit(message).value == '{"a":"é","b":2}'.encode()
    number = patch_edit(parse_patch('[{"op": "replace", "path": "/b", "value": 1.0}]'))
    assert number(message).value == '{"a":"é","b":1.0}'.encode()  # equal, and written in another way
    same = patch_edit(parse_patch('[{"op": "test", "path": "/b", "value": 1}]'))
    assert same(message) is message  # what does not change keeps its bytes
    with pytest.raises(NotEdited, match="dlq-0-7 is not JSON"):
        edit(message._replace(value=b"\xff"))
    assert function_edit(lambda one: one.value[::-1])(message).value == message.value[::-1]
    assert function_edit(lambda one: one._replace(offset=99, key=b"q"))(message) == message._replace(key=b"q")
    with pytest.raises(NotEdited, match="expected a value or a Message"):
        function_edit(lambda one: 7)(message)
