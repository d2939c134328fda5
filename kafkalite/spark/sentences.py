"""Extract one sentence for the user from Spark's errors, which contain stack traces of Java and Python.

Thread rule: pure functions.
"""

from __future__ import annotations

import re
from typing import Final

OURS: Final = re.compile(r"^(?:[\w.]+: )?kafkalite\.[\w.]+: (.*)$", re.MULTILINE)
"""One of kafkalite's errors in the traceback of a task or plan; its message is a sentence."""
RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""The message of a column's raise_error."""
CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.*)$", re.MULTILINE)
PYTHON: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Warning)): (.*)$", re.MULTILINE)
CLASS: Final = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+\w+(?:Exception|Error): ")
SPARK: Final = ("pyspark", "py4j", "grpc")
"""Packages whose errors contain stack traces."""


def sentence_of(error: BaseException) -> str | None:
    """Return the message of a kafkalite error inside Spark's error, or None."""
    text = str(error)
    found = OURS.search(text) or RAISED.search(text)
    return None if found is None else found[1].strip()


def is_sparks(error: BaseException) -> bool:
    """Return whether this is an error of Spark."""
    return type(error).__module__.partition(".")[0] in SPARK


def any_sentence_of(error: BaseException) -> str:
    """Return the best line of an error for the user.

    Candidates are, in this order: kafkalite's message, the last cause, the last line of a Python trace, and the first
    line.
    """
    ours = sentence_of(error)
    if ours is not None:
        return ours
    text = str(error)
    causes = [line for line in CAUSE.findall(text) if line.strip()]
    raised = PYTHON.findall(text)
    lines = [
        line for line in text.splitlines() if line.strip() and not line.startswith("An error occurred while calling")
    ]
    if raised and not causes:
        name, said = raised[-1]
        line = f"{name}: {said}"
    else:
        line = causes[-1] if causes else (lines or [type(error).__name__])[0]
    return CLASS.sub("", line.strip())
