"""Values of dead letters in an editor."""

from pathlib import Path

import pytest

from kafkalite.cli.letters import editor_edit
from kafkalite.failures.edits import NotEdited
from kafkalite.failures.events import Message

LETTER = Message("dlq", 0, 7, 0, b"k", b"a lot")


@pytest.mark.parametrize("value", [None, b"", b"a lot"])
def test_a_value_that_the_editor_leaves_as_it_is(value: bytes | None) -> None:
    message = LETTER._replace(value=value)
    assert editor_edit("true")(message) == message


def test_an_editor_with_quoted_arguments(tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\nexec sed "$@"\n')
    editor.chmod(0o755)
    assert editor_edit(f"'{editor}' -i 's/a lot/3100/'")(LETTER).value == b"3100"
    assert editor_edit("truncate -s 0")(LETTER).value == b""


@pytest.mark.parametrize(
    ("editor", "said"),
    [("sh -c 'exit 3'", "sh exited with status 3"), ("sh -c 'kill -9 $$'", "sh was killed by signal 9")],
)
def test_an_editor_that_fails(editor: str, said: str) -> None:
    with pytest.raises(NotEdited, match=f"dead letter dlq-0-7: the editor {said}"):
        editor_edit(editor)(LETTER)
