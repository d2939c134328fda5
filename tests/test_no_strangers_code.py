"""No tracked file installs kafkalite from a package index, where it has no release, and anybody could take its name.

The check looks for the name as a requirement: with extras, with a version, or bare behind an installer's command. What
names a file, a directory, a repository or a URL is no requirement by name.
"""

import re
from collections.abc import Iterator

import pytest

from kafkalite.base import extras
from tests.kit.sources import name_of, text_files

# Brackets keep this file from finding itself.
NAME = r"(?<![\w./@-])kafka[l]ite"
EXTRA = re.compile(rf"{NAME}\s*\[[\w{{][\w,\s{{}}.-]*\](?!\s*@)", re.IGNORECASE)
VERSION = re.compile(rf"{NAME}\s*(?:===?|~=|!=|[<>]=?)\s*['\"]?[\d$*]", re.IGNORECASE)
INSTALLER = (
    r"(?:pip\d?|pipx|uv|uvx|poetry|pdm|hatch|rye|pixi|conda|mamba|micromamba|easy_install)\b['\",\s]+"
    r"(?:pip['\",\s]+|tool['\",\s]+)?(?:install|download|wheel|add|run|inject|upgrade|sync)\b"
    r"|\buvx\b|\beasy_install\b"
)
BARE = re.compile(rf"\b(?:{INSTALLER})(?:[^\n`#;|&]*?[\s'\",(])?{NAME}(?![\w.*@/:+-]|\s*@|\s*\[|\.whl)", re.IGNORECASE)
OWN_EXTRAS = ("pyproject.toml", "tests/unit/test_tools.py", "tools/pip_install.py", "tests/unit/base/test_extras.py")
"""Files in which an extra names another of the same distribution, which pip takes from the candidate at hand."""


def installs_by_name(text: str, *, own_extras: bool = False) -> Iterator[str]:
    """Yield the places that install by name; a backslash continues a command."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.split("\n"):
        if "kafkalite" not in line.lower():
            continue
        checks = (VERSION, BARE) if own_extras else (EXTRA, VERSION, BARE)
        if "--no-index" not in line and any(check.search(line) for check in checks):
            yield line.strip()


@pytest.mark.skipif(extras.RELEASE_INDEX is not None, reason="there are releases on an index")
def test_no_file_installs_kafkalite_from_an_index() -> None:
    found = [
        f"{name_of(path)}: {line}"
        for path, text in text_files()
        for line in installs_by_name(text, own_extras=name_of(path) in OWN_EXTRAS)
    ]
    assert found == []


# A tilde splits the name, so that this file passes its own check.
@pytest.mark.parametrize(
    "line",
    [
        "pip install 'kafka~lite[spark]'",
        "pip install kafka~lite",
        "pip install -U kafka~lite",
        "run `pip3 install kafka~lite`.",
        'pip install "kafka~lite==0.1.0"',
        "RUN pip install --no-cache-dir \\\n    kafka~lite",
        "pip install --find-links=/wheels 'kafka~lite==${VERSION}'",
        "pip download kafka~lite",
        "pipx install kafka~lite",
        "uv pip install kafka~lite",
        "uv tool install kafka~lite",
        "uv add Kafka~lite",
        "uvx kafka~lite start",
        "pipx run kafka~lite start",
        'subprocess.run([sys.executable, "-m", "pip", "install", "kafka~lite"])',
        "conda install kafka~lite",
        "needs 'kafka~lite[metrics]'",
        'dependencies = ["kafka~lite>=0.1"]',
        "kafka~lite == 0.2",
    ],
)
def test_an_install_by_name_is_found(line: str) -> None:
    assert [*installs_by_name(line.replace("~", ""))]


@pytest.mark.parametrize(
    "line",
    [
        "pip install ./kafkalite-*.whl",
        "pip install '.[spark]'",
        'pip install "$(echo dist/kafkalite-*.whl)[query]"',
        "pipx install dist/kafkalite-*-cp311-*x86_64.whl",
        'KAFKALITE: "kafkalite @ git+https://git.example.org/kafkalite.git"',
        "pip install 'kafkalite[query] @ git+https://git.example.org/kafkalite.git'",
        "pip install confluent-kafka",
        "`pip install .` in a clone; then `kafkalite start` runs it",
        "/venv/bin/pip install --quiet --no-index --find-links /house /house/kafkalite-*.whl",
        "pip install -e .  # kafkalite",
    ],
)
def test_an_install_from_what_is_at_hand_is_none(line: str) -> None:
    assert [*installs_by_name(line)] == []
