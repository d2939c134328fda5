"""The command that installs an extra, for each way in which kafkalite can have been installed."""

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from kafkalite.base import extras

ROOT = Path(extras.__file__).resolve().parent.parent.parent
REQUIRES = [
    "numpy>=2.0",
    'pyarrow>=17; extra == "avro"',
    'jinja2>=3.1; extra == "console"',
    'kafkalite[avro]; extra == "console"',
    "waitress>=3.0; extra == 'console'",
    'pyjwt[crypto]>=2.10; extra == "oauth"',
]


def installed(site: Path, origin: object = None) -> metadata.Distribution:
    """A distribution's metadata in a directory, with PEP 610's record of where it came from."""
    folder = site / "kafkalite-0.1.0.dist-info"
    folder.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        "Name: kafkalite",
        "Version: 0.1.0",
        *(f"Requires-Dist: {row}" for row in REQUIRES),
    ]
    (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    return metadata.Distribution.at(folder)


def arguments(site: Path, origin: object = None, extra: str = "console") -> list[str]:
    return extras.pip_arguments(extra, site, installed(site, origin), [str(site)])


def test_a_clone_is_installed_in_place() -> None:
    assert extras.pip_arguments("query", ROOT, None, []) == ["-e", f"{ROOT}[query]"]


def test_a_wheel_at_hand_is_installed_with_the_extra(tmp_path: Path) -> None:
    wheel = tmp_path / "some wheels" / "kafkalite-0.1.0-cp311-cp311-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.touch()
    assert arguments(tmp_path / "site", {"url": wheel.as_uri(), "archive_info": {}}) == [f"{wheel}[console]"]


def test_a_directory_that_was_copied_is_installed_with_the_extra(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    origin = {"url": (tmp_path / "clone").as_uri(), "dir_info": {}}
    assert arguments(tmp_path / "site", origin) == [f"{tmp_path}/clone[console]"]


def test_a_wheel_from_a_url_is_installed_from_there(tmp_path: Path) -> None:
    url = "https://files.example.org/kafkalite-0.1.0-cp311-cp311-linux_x86_64.whl"
    assert arguments(tmp_path, {"url": url, "archive_info": {}}) == [f"kafkalite[console] @ {url}"]


def test_a_repository_is_installed_at_the_same_commit(tmp_path: Path) -> None:
    origin = {"url": "https://git.example.org/k.git", "vcs_info": {"vcs": "git", "commit_id": "a1b2"}}
    assert arguments(tmp_path, origin) == ["kafkalite[console] @ git+https://git.example.org/k.git@a1b2"]


@pytest.mark.parametrize(
    "origin",
    [
        None,
        {"url": "file:///gone/kafkalite-0.1.0-py3-none-any.whl", "archive_info": {}},
        [],
        {"url": 7, "vcs_info": []},
        {"dir_info": {}},
    ],
)
def test_packages_are_named_where_the_origin_is_unknown_or_gone(tmp_path: Path, origin: object) -> None:
    assert arguments(tmp_path, origin) == ["jinja2>=3.1", "pyarrow>=17", "waitress>=3.0"]
    assert extras.packages_of("oauth", REQUIRES) == ["pyjwt[crypto]>=2.10"]


def test_a_copy_outside_of_the_interpreters_directories_gets_its_packages_beside_it(tmp_path: Path) -> None:
    found = extras.pip_arguments("avro", tmp_path, installed(tmp_path), ["/usr/lib/python3/dist-packages"])
    assert found == ["--target", str(tmp_path), "pyarrow>=17"]


def test_a_release_on_an_index_is_installed_from_that_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "RELEASE_INDEX", "https://index.example.org/simple")
    assert arguments(tmp_path) == ["--index-url", "https://index.example.org/simple", "kafkalite[console]"]


def test_the_sentence_is_a_command_of_this_interpreter_that_a_shell_can_run() -> None:
    sentence = extras.needs_extra("queries need duckdb and pyarrow", "query")
    what, _, command = sentence.partition(": ")
    assert what == "queries need duckdb and pyarrow"
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", "-e", f"{ROOT}[query]"]
