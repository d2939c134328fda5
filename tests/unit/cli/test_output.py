"""What commands write: escaped for a terminal, in one module that no command goes round."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kafkalite.classic.messages import Message
from kafkalite.cli import output
from kafkalite.cli.classic.console import NewlineFormatter
from kafkalite.cli.formats import Format
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import BytesColumn, HeaderColumns, RecordColumns
from tests.kit.harness.terminal import OBEYED, a_terminal
from tests.kit.sources import nodes_of

PACKAGE = Path(output.__file__).parents[1]
DIRECTED = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
OTHERS = ["\u2028", "\u2029", "\ud800", "\udcff", "\udfff"]
WRITERS = {"kafkalite/cli/output.py", "kafkalite/base/logging.py"}
"""Who writes to standard streams: commands by the one, logs by the other, both escaped."""
OWN_OUTPUT = "kafkalite/examples/"
"""Programs that show something; they print what they have made themselves."""
HARMLESS = {"flush", "isatty"}


# --- characters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", [*CONTROLS, *DIRECTED, *OTHERS], ids=lambda char: f"U+{ord(char):04X}")
def test_character_that_a_terminal_obeys(char: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"a{char}b")
    output.print_table((f"t{char}",), [(f"c{char}",)])
    output.print_json({f"k{char}": [f"v{char}"]})
    out = capsys.readouterr().out
    assert not OBEYED.search(out)
    line, title, cell, document = out.splitlines()
    assert all("\\" in text for text in (line, title, cell, document))
    assert json.loads(document) == {f"k{char}": [f"v{char}"]}
    output.note(f"a{char}b")
    assert not OBEYED.search(err := capsys.readouterr().err)
    assert err.count("\n") == 1
    kept = output.escaped_lines(f"a{char}b")
    assert (kept == f"a{char}b") == (char in "\n\t")


@pytest.mark.parametrize(
    "text", ["", "plain", "Grüße", "日本語", "👩‍💻", "10\u00a0000\u202f€", "می\u200cخواهم", "a\tb\nc"], ids=ascii
)
def test_text_of_any_script_stays(text: str) -> None:
    assert output.escaped_lines(text) == text


def test_beyond_the_first_plane_json_has_pairs() -> None:
    assert output.json_text("\U000e0001") == r'"\udb40\udc01"'


def test_bytes_that_are_no_text() -> None:
    assert output.escaped_bytes(b"a\x9b\xff\n") == "a\\x9b\\xff\n"


# --- streams ----------------------------------------------------------------------------------------------------------


def test_stream_behind_a_guard() -> None:
    below = io.StringIO()
    guard = output.Guard(below)
    print("a\x1b[31m", "b\x9b", file=guard, end="\n\n")  # type: ignore[call-overload]
    guard.writelines(["c\u202e\n", "d\r"])
    assert below.getvalue() == "a\\x1b[31m b\\x9b\n\nc\\u202e\nd\\r"
    assert guard.isatty() is False


def test_format_on_a_terminal_escapes_fields_and_not_itself() -> None:
    record = (b"k\n\x1b", b"v\n\t\x1b\x9b", (("h\n", b"\x07"), ("n", None)))
    columns = RecordColumns(
        np.array([7]),
        np.array([8]),
        BytesColumn.from_items([record[0]]),
        BytesColumn.from_items([record[1]]),
        HeaderColumns.from_items([record[2]]),
    )
    plain, shown = (Format("\\x1b%t %k %s %h %S\\0", "-", terminal=one) for one in (False, True))
    where = TopicPartition("logs", 0)
    assert bytes(plain.write(where, columns)) == b"\x1blogs k\n\x1b v\n\t\x1b\x9b h\n=\x07,n=- 5\0"
    assert bytes(shown.write(where, columns)) == b"\x1blogs k\\n\\x1b v\n\t\\x1b\\x9b h\\n=\\x07,n=- 5\0"


def test_records_are_raw_in_a_pipe_and_escaped_on_a_terminal(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def write() -> None:
        NewlineFormatter().write(Message(b"a\x1b\n\t\x9b"), output.data_stream())
        output.data_stream().flush()
        output.write_value("b\x1b\n", flush=True)

    with a_terminal() as pieces:
        output.guard_streams()
        write()
    assert b"".join(pieces) == b"a\\x1b\n\t\\x9b\nb\\x1b\n"
    write()
    assert capfdbinary.readouterr().out == b"a\x1b\n\t\x9b\nb\x1b\n"


# --- nothing goes round it --------------------------------------------------------------------------------------------


def bypasses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of all in a module that writes to a standard stream itself."""
    for node in nodes_of(tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno, "print"
            case ast.Call(func=ast.Name(id="input"), args=[prompt, *_]) if not isinstance(prompt, ast.Constant):
                yield node.lineno, "input"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"), attr=name):
                if name not in HARMLESS:
                    yield node.lineno, f"sys.std….{name}"
            case ast.Attribute(value=ast.Name(id="os"), attr="write" | "writev"):
                yield node.lineno, f"os.{node.attr}"
            case ast.Attribute(value=ast.Name(id="sys"), attr="__stdout__" | "__stderr__"):
                yield node.lineno, f"sys.{node.attr}"
            case ast.Constant(value="/dev/tty" | "/dev/stdout" | "/dev/stderr"):
                yield node.lineno, str(node.value)
    yield from _handed_on(tree)


def _handed_on(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Streams that are given to something else."""
    within = {id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Attribute)}
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr" as name) if id(node) not in within:
                yield node.lineno, f"sys.{name}"
            case ast.ImportFrom(module="sys", names=names):
                yield from ((node.lineno, name.name) for name in names if name.name in {"stdout", "stderr"})


def modules() -> list[str]:
    found = sorted(path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*.py"))
    return [name for name in found if name not in WRITERS and not name.startswith(OWN_OUTPUT)]


BYPASS = re.compile(r"print|input|std(out|err)|os\.write|/dev/")
"""In the text of each module in which there is something to find."""


def test_no_module_goes_round_the_output() -> None:
    found = [
        (name, *where)
        for name in modules()
        if BYPASS.search(text := (PACKAGE.parent / name).read_text(encoding="utf-8"))
        for where in bypasses(ast.parse(text))
        if where[1] != "os.write" or name.startswith("kafkalite/cli/")
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "print(name)",
        "print(name, file=sys.stderr)",
        "sys.stdout.write(name)",
        "sys.stderr.buffer.write(name)",
        "csv.writer(sys.stdout)",
        "out = sys.stdout",
        "from sys import stdout",
        "os.write(1, name)",
        "sys.__stderr__.write(name)",
        "input(f'{name}?')",
        "open('/dev/tty', 'w').write(name)",
    ],
)
def test_way_round_the_output_is_found(text: str) -> None:
    assert BYPASS.search(text)
    assert list(bypasses(ast.parse(text)))
