"""`kafkalite version`, and distributions that ship a package of the same name."""

import json
from importlib import metadata

import pytest

from kafkalite.cli import main
from kafkalite.version import VERSION


def test_version_names_release_interpreter_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["version"], row["foreign"]) == (VERSION, [])
    assert row["python"].startswith("CPython 3.")
    assert main(["version"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"kafkalite {VERSION}"


def test_version_names_a_foreign_distribution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """A distribution of another name that contains a package kafkalite."""
    place = tmp_path / "other_lite-9.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: other-lite\nVersion: 9\n")
    (place / "top_level.txt").write_text("kafkalite\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert metadata.version("other-lite") == "9"
    assert main(["version"]) == 1
    assert "the distribution other-lite also installs a package named kafkalite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["topics", "lst"], "did you mean 'list'"),
        (["groups", "reset-offset"], "did you mean 'reset-offsets'"),
        (["topcs"], "did you mean 'topics'"),
        (["topics", "qqq"], "(see kafkalite topics --help)"),
    ],
)
def test_mistaken_words_get_a_suggestion(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert text in said
    assert ("did you mean" in said) == ("did you mean" in text)


@pytest.mark.parametrize("words", [["--port", "9093"], ["--port=9093"]])
def test_an_unknown_port_flag_points_to_the_listeners(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["start", *words]) == 2
    assert "unknown option; use --listeners kafka://127.0.0.1:9093 (see" in capsys.readouterr().err
    assert main(["start", "--help"]) == 0
    assert "--port" not in capsys.readouterr().out
