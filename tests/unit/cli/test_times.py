"""Flags that take a TIME: all of them by the grammar of kafkalite.base.times."""

import argparse

import pytest

from kafkalite.cli import COMMANDS, command_of
from kafkalite.cli.times import moment

SECONDS, SAME_MS = "1763748000", 1_763_748_000_000


def flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Those of its actions too."""
    found = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [flag for inner in action.choices.values() for flag in flags(inner)]
    return found


def test_ten_digits_are_seconds_wherever_a_flag_takes_a_time() -> None:
    found = {}
    for name in COMMANDS:
        for flag in flags(command_of(name)[1]):
            if "TIME" in f"{flag.metavar} {flag.help}" and flag.type is not None:
                found[name, flag.option_strings[-1]] = flag.type(SECONDS)
    assert found == dict.fromkeys(
        [
            ("audit", "--since"),
            ("audit", "--until"),
            ("consume", "--since"),
            ("consume", "--until"),
            ("groups", "--to-datetime"),
            ("load", "--from"),
            ("produce", "--timestamp"),
            ("query", "--since"),
            ("query", "--until"),
            ("track", "--since"),
            ("track", "--until"),
        ],
        SAME_MS,
    )


def test_argparse_hears_the_sentence() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'soon' is not a time"):
        moment("soon")
