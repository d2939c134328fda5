"""Print a completion script for your shell.

  kafkalite completion bash > ~/.local/share/bash-completion/completions/kafkalite
  kafkalite completion zsh > ~/.zfunc/_kafkalite
  kafkalite completion fish > ~/.config/fish/completions/kafkalite.fish

The script contains the commands' flags, so a completion does not start Python.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.cli import COMMANDS, command_of
from kafkalite.cli.output import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class Words(NamedTuple):
    """The words that can follow a command or one of its actions."""

    path: str
    """Such as "topics", "topics create"."""
    words: list[str]
    choices: dict[str, list[str]]
    """Flag → the values it takes, where they are known."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    table = [words for name in COMMANDS for words in words_of(name)]
    script = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    write_text(script(table))
    return 0


def words_of(name: str) -> list[Words]:
    """Return the flags of a command and of each of its actions."""
    _, parser = command_of(name)
    return [_words(path, each) for path, each in walk(name, parser)]


def walk(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield (words that select a parser, parser) for a command and each of its actions."""
    yield path, parser
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for name, inner in action.choices.items():
                yield from walk(f"{path} {name}", inner)


def _words(path: str, parser: argparse.ArgumentParser) -> Words:
    words: list[str] = []
    choices: dict[str, list[str]] = {}
    for action in parser._actions:  # noqa: SLF001 - the same
        if action.help == argparse.SUPPRESS:
            continue
        words += [flag for flag in action.option_strings if flag.startswith("--")]
        if action.choices is not None:
            values = [str(choice) for choice in action.choices]
            if action.option_strings:
                choices.update(dict.fromkeys(action.option_strings, values))
            else:
                words += values
    return Words(path, words, choices)


def bash(table: list[Words]) -> str:
    """Return the bash script: one function that chooses the completions by the words typed before."""
    cases = "".join(f'    "{entry.path}") words="{" ".join(entry.words)}" ;;\n' for entry in table)
    values = "".join(
        f'    "{entry.path} {flag}") words="{" ".join(choices)}" ;;\n'
        for entry in table
        for flag, choices in entry.choices.items()
    )
    actions = sorted({entry.path.split()[0] for entry in table if " " in entry.path})
    return f"""\
# bash completion for kafkalite; made by `kafkalite completion bash`
_kafkalite() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local path="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$current"))
    return
  fi
  case "$path" in
    {"|".join(actions)}) [ "$COMP_CWORD" -gt 2 ] && path="$path ${{COMP_WORDS[2]}}" ;;
  esac
  case "$path $previous" in
{values}  esac
  [ -z "$words" ] && case "$path" in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kafkalite kafkalite
"""


def zsh(table: list[Words]) -> str:
    """Return the zsh script, which calls the function of the bash script."""
    return f"""\
#compdef kafkalite
autoload -U +X bashcompinit && bashcompinit
{bash(table)}"""


def fish(table: list[Words]) -> str:
    lines = ["# fish completion for kafkalite; made by `kafkalite completion fish`"]
    lines += [
        f"complete -c kafkalite -n __fish_use_subcommand -a {name} -d '{text}'" for name, text in COMMANDS.items()
    ]
    for entry in table:
        condition = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in entry.path.split())
        for word in entry.words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            values = f" -x -a '{' '.join(entry.choices[word])}'" if word in entry.choices else ""
            lines.append(f"complete -c kafkalite -n '{condition}' {what}{values}")
    return "\n".join(lines) + "\n"
