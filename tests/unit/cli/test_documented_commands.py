"""Each command line in a page or in a command's help is one that the command takes: its flags are there, and so are its
actions. Pages whose blocks are run say so by themselves; here are also those that are not run."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli import COMMANDS, Formatter, Parser
from kafkalite.cli.classic import TOOLS

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SUBSTITUTION = re.compile(r"\$\([^()]*\)")
EXPLANATION = re.compile(r"   +[a-z].*$")
OPERATORS = set("|&;<>()")


def commands_in(text: str) -> Iterator[list[str]]:
    """The words behind `kafkalite` in a shell script, up to what the shell takes."""
    for line in SUBSTITUTION.sub("word", text.replace("\\\n", " ")).splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # a quotation that ends on another line
            continue
        while "kafkalite" in words:
            words = words[words.index("kafkalite") + 1 :]
            end = next((at for at, word in enumerate(words) if word and set(word) <= OPERATORS), len(words))
            redirected = end < len(words) and words[end][0] == ">" and end and words[end - 1] == "2"
            yield words[: end - 1 if redirected else end]


def in_pages() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for words in commands_in(block):
                if words and (words[0] in COMMANDS or words[0].isalpha()):
                    yield page.name, words


def in_help() -> Iterator[tuple[str, list[str]]]:
    for name in COMMANDS:
        text = importlib.import_module(f"kafkalite.cli.{name}").__doc__ or ""
        examples = [EXPLANATION.sub("", line) for line in re.findall(r"^ *(kafkalite .*)$", text, re.MULTILINE)]
        for words in commands_in("\n".join(examples)):
            yield f"kafkalite {name} --help", words


def parse(words: list[str]) -> None:
    """UsageError for words that the command does not take."""
    name, *rest = words
    parser = Parser(prog=name, formatter_class=Formatter)
    if name == "classic" and rest and rest[0] in TOOLS:
        tool, *rest = rest
        module = importlib.import_module(f"kafkalite.cli.classic.{TOOLS[tool][0]}")
        getattr(module, f"{tool.replace('-', '_')}_arguments")(parser)
    else:
        importlib.import_module(f"kafkalite.cli.{name}").add_arguments(parser)
    parser.parse_args(rest)


@pytest.mark.parametrize("where", [in_pages, in_help])
def test_a_command_line_that_is_told_is_taken(where) -> None:  # type: ignore[no-untyped-def]
    wrong = []
    told = list(where())
    assert len(told) > 90
    for place, words in told:
        try:
            parse(words)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it is, it is told
            wrong.append(f"{place}: {shlex.join(words)}: {error}")
    assert wrong == []
