"""Tests give error codes by name: a number tells the reader of a failure nothing."""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from kafkalite.errors import ErrorCode
from tests.kit.sources import name_of, nodes_of, python_files

ERROR_VALUES = frozenset(code.value for code in ErrorCode if code != ErrorCode.NONE)
ERROR_WORD = re.compile(r"(?:^|_)(?:errors?|codes?)(?:_|$)")
ANSWERS_OF_LOGS = frozenset({"append_batch", "append_internal", "read_copy"})
"""Methods and functions whose results have an error code at a place of a tuple."""


def tells_an_error(node: ast.expr) -> bool:
    """Whether an expression's value is an error code, as its last name says: `answer.error_code`, `codes[0]`."""
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)), slice=index):
            places = {"0", "1", "1::5"} if name in ANSWERS_OF_LOGS else set()
            return ast.unparse(index) in places or ERROR_WORD.search(name) is not None
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return ERROR_WORD.search(name.lower()) is not None
        case ast.Subscript(value=inner) | ast.Call(func=inner) | ast.ListComp(elt=inner) | ast.SetComp(elt=inner):
            return tells_an_error(inner)
    return False


def numbered_codes(node: ast.expr) -> Iterator[ast.expr]:
    """Yield numbers of error codes in an expression for a code. Any but 0, which is no error."""
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and value in ERROR_VALUES:
            yield node
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            yield node
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from numbered_codes(part)
        case ast.IfExp(body=left, orelse=right) | ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from numbered_codes(left)
            yield from numbered_codes(right)
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from numbered_codes(part)
        case ast.Call(func=ast.Attribute(attr="sampled_from"), args=[choices]):
            yield from numbered_codes(choices)


def opposite_codes(named: ast.expr, other: ast.expr) -> Iterator[ast.expr]:
    """Numbers opposite to what tells an error; tuples are compared place by place."""
    match named, other:
        case ((ast.ListComp(elt=row) | ast.SetComp(elt=row)), (ast.List(elts=found) | ast.Set(elts=found))):
            for one in found:
                yield from opposite_codes(row, one)
        case ast.Tuple(elts=left), ast.Tuple(elts=right) if len(left) == len(right):
            for place, value in zip(left, right, strict=True):
                yield from opposite_codes(place, value)
        case ast.Subscript(slice=ast.Slice()), ast.Tuple(elts=[first, *_]) if tells_an_error(named):
            yield from numbered_codes(first)
        case _ if tells_an_error(named):
            yield from numbered_codes(other)


def constant_codes(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    """Numbers given to names that are words of the code's: `INVALID_EPOCH = 47`."""
    match target, value:
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            for name, number in zip(names, values, strict=True):
                yield from constant_codes(name, number)
        case ast.Name(id=name), ast.Constant() | ast.UnaryOp():
            for number in numbered_codes(value):
                if {*name.upper().split("_")} <= {*ErrorCode(ast.literal_eval(number)).name.split("_")}:
                    yield number


def codes_among_parameters(places: Sequence[ast.expr], rows: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Numbers in the rows of a test's parameters, in the columns whose names tell an error."""
    for row in rows:
        values = ast.Tuple(row.args) if isinstance(row, ast.Call) else row
        if len(places) == 1:
            values = values.elts[0] if isinstance(row, ast.Call) and values.elts else values
        yield from opposite_codes(places[0] if len(places) == 1 else ast.Tuple([*places]), values)


def numbers_of_errors(tree: ast.Module) -> Iterator[ast.expr]:
    """Where a test gives an error code by its number: compared, passed by name, among its parameters, as a constant."""
    lists = {
        ast.unparse(node.targets[0]): node.value.elts
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
    }
    for node in nodes_of(tree):
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from opposite_codes(left, right)
                yield from opposite_codes(right, left)
            case ast.keyword(arg=str(name), value=value) if name != "errors":
                yield from opposite_codes(ast.Name(name), value)
            case ast.Call(func=ast.Attribute(attr="fail"), args=[_, code, *_]):  # of a fake: from a request's kind on
                yield from numbered_codes(code)
            case ast.For(target=target, iter=ast.Tuple(elts=values) | ast.List(elts=values)):
                for value in values:
                    yield from opposite_codes(target, value)
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, rows, *_]):
                told = ast.literal_eval(names)
                columns = [ast.Name(name.strip()) for name in (told.split(",") if isinstance(told, str) else told)]
                values = rows.elts if isinstance(rows, ast.List) else lists.get(ast.unparse(rows), [])
                yield from codes_among_parameters(columns, values)
            case ast.Assign(targets=[target], value=value):
                yield from opposite_codes(target, value)
                yield from constant_codes(target, value)


def test_tests_give_error_codes_by_name() -> None:
    """But the table's own test, where the numbers are checked."""
    found = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in python_files("tests/")
        if name_of(path) != "tests/unit/test_errors.py"
        for node in numbers_of_errors(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "assert answer.error_code == 3",
        "assert codes_of(answer) == [0, 27]",
        "assert {row.error for row in rows} == {1}",
        "assert (row.name, row.error_code) == ('t', 3)",
        "assert [(row.name, row.error_code) for row in rows] == [('t', 0), ('u', 42)]",
        "assert append_batch(log, batch)[1] == 87",
        "assert append_batch(log, batch)[1::5] == (32, 0)",
        "code = code or (36 if there else 0)",
        "answer = Answer(error_code=-1)",
        "INVALID_EPOCH, OTHER = 47, 5",
        "cluster.fail(OFFSET_COMMIT, 14, times=2)",
        "for code in (ABORTABLE, 51): pass",
        "@pytest.mark.parametrize('code', [22])\ndef test(code): pass",
        "@pytest.mark.parametrize(('batch', 'code'), REFUSED)\ndef test(): pass\nREFUSED = [pytest.param(b'', 87)]",
    ],
)
def test_a_number_for_an_error_is_found(line: str) -> None:
    assert len(list(numbers_of_errors(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "assert answer.error_code == 0",
        "assert (row.partition, row.error_code) == (3, ErrorCode.NONE)",
        "assert status.code == 40401",
        "assert codes == [ErrorCode.NONE] * 2",
        "PARTITION_COUNT = 3",
        "assert append_batch(log, batch)[1::5] == (ErrorCode.INVALID_TIMESTAMP, 2)",
    ],
)
def test_other_numbers_are_no_errors(line: str) -> None:
    assert list(numbers_of_errors(ast.parse(line))) == []
