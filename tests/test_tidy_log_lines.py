"""No line that a client can cause is logged once for each request or connection: it goes through a RepeatLogger.

In the rooms that serve clients, a plain logger writes only the lines named here, which no client can repeat.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.sources import ROOT, nodes_of, text_of, tree_of

SERVING = [
    "kafkalite/broker/dispatch.py",
    "kafkalite/base/pool.py",
    "kafkalite/broker/cluster/creation.py",
    "kafkalite/broker/cluster/forwarding.py",
    "kafkalite/broker/coordinator",
    "kafkalite/broker/handlers",
    "kafkalite/broker/limits",
    "kafkalite/broker/log/classic",
    "kafkalite/broker/log/expiry_checkpoint.py",
    "kafkalite/broker/log/indexes.py",
    "kafkalite/broker/log/manager.py",
    "kafkalite/broker/log/metadata_store.py",
    "kafkalite/broker/log/offset_checkpoints.py",
    "kafkalite/broker/log/opening.py",
    "kafkalite/broker/log/partition_log.py",
    "kafkalite/broker/log/removals.py",
    "kafkalite/broker/log/segment_removal.py",
    "kafkalite/broker/log/topic_source.py",
    "kafkalite/metrics/page.py",
    "kafkalite/broker/metrics/slow.py",
    "kafkalite/broker/net",
    "kafkalite/broker/quotas",
    "kafkalite/broker/telemetry",
]
LEVELS = {"info", "warning", "error", "exception", "critical", "log"}
START, STOP, DISK, LEADERSHIP = "at a start", "at a stop", "the disk fails, once for each log", "a partition moves"
NO_CLIENT = {
    "appends work again": DISK,
    "compacted the metadata journal": "a chore of the housekeeping",
    "could not close a log cleanly": STOP,
    "could not close the data directory cleanly": STOP,
    "could not load a coordinator partition; it is unavailable": LEADERSHIP,
    "could not load groups; they are unavailable until the broker restarts": START,
    "could not load transactions; they are unavailable until the broker restarts": START,
    "could not record producer ids in the journal": START,
    "could not rename a deleted segment": DISK,
    "could not rename a partition directory": DISK,
    "could not save an index": DISK,
    "could not store the expiry time": DISK,
    "could not sync the directory of a log": DISK,
    "could not take over a coordinator partition; it is unavailable": LEADERSHIP,
    "could not write the log start offset": DISK,
    "groups loaded": START,
    "ignored an unusable stored expiry time": START,
    "memory budget of the settings": START,
    "partition is offline until the broker restarts": DISK,
    "renamed a directory that does not belong to the new topic of its name": START,
    "renamed a directory that has the name of a deleted topic but no valid topic id": START,
    "skipped group records of an unknown type": START,
    "the address space limit (ulimit -v) is below what the settings need: requests may run out of memory, and each"
    " partition maps log.segment.bytes; limit memory with a cgroup instead": START,
    "the disk is full; appends are refused and reads continue": DISK,
    "the memory limit of the cgroup is below the memory budget of the settings, so the kernel may kill the broker;"
    " raise the limit, or lower %s": START,
    "transactions loaded": START,
}
"""Message of a plain logger → when it is written."""
REASON = re.compile(r"\b(?:close|refuse|close_oldest)\(\s*f[\"']")
NATIVE_LOGGER = re.compile(r"^(?:cdef object )?\w+ = logging\.getLogger", re.MULTILINE)


class Line(NamedTuple):
    """A call that logs: through which name, and what."""

    logger: str
    message: str | None
    number: int


def lines_of(tree: ast.Module) -> tuple[list[Line], list[Line]]:
    """The calls of plain loggers, and those of RepeatLoggers."""
    plain, repeat = set(), set()
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        made = ast.unparse(node.value.func)
        if isinstance(target, ast.Name) and made in {"logging.getLogger", "RepeatLogger"}:
            (plain if made == "logging.getLogger" else repeat).add(target.id)
    found: tuple[list[Line], list[Line]] = ([], [])
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
            continue
        name = ast.unparse(node.func.value)
        if name not in plain | repeat or not node.args:
            continue
        first = node.args[1 if node.func.attr == "log" else 0]
        message = first.value if isinstance(first, ast.Constant) else None
        found[name in repeat].append(Line(name, message, node.lineno))
    return found


def sources(paths: list[str]) -> list[Path]:
    found = [ROOT / path for path in paths]
    return sorted(each for path in found for each in (path.rglob("*.py") if path.is_dir() else [path]))


def test_what_a_client_can_cause_is_logged_by_a_repeat_logger() -> None:
    written = {
        (line.message, f"{path.relative_to(ROOT)}:{line.number}")
        for path in sources(SERVING)
        for line in lines_of(tree_of(path))[0]
    }
    assert {place for message, place in written if message not in NO_CLIENT} == set()
    assert NO_CLIENT.keys() == {message for message, _ in written}, "a line that is gone is not listed"


def test_the_kind_of_a_line_is_no_clients_choice() -> None:
    """The message of a RepeatLogger is its kind, so it does not depend on the client's data."""
    for path in sources(["kafkalite"]):
        for line in lines_of(tree_of(path))[1]:
            assert line.message is not None, f"{path.relative_to(ROOT)}:{line.number}"
    for path in [*sources(SERVING), *(ROOT / "ext").rglob("*.pyx")]:
        assert REASON.search(text_of(path)) is None, f"{path}: the reason of a close is a constant, with values"


def test_native_modules_log_by_a_repeat_logger_alone() -> None:
    natives = [path for path in (ROOT / "ext").rglob("*.pyx") if "logging.getLogger" in text_of(path)]
    assert natives
    assert [str(path) for path in natives if NATIVE_LOGGER.search(text_of(path))] == []


@pytest.mark.parametrize(
    ("source", "plain", "repeat"),
    [
        ("logger = logging.getLogger(1)\nlogger.info('a')", ["a"], []),
        ("logger = RepeatLogger(logging.getLogger(1))\nlogger.info('a')", [], ["a"]),
        ("_log: Final = RepeatLogger(logging.getLogger(1))\n_log.warning(f'{a}')", [], [None]),
        ("logger = logging.getLogger(1)\nr = RepeatLogger(logger)\nr.info('a')\nlogger.log(2, 'b')", ["b"], ["a"]),
    ],
)
def test_both_kinds_of_loggers_are_told_apart(source: str, plain: list[str], repeat: list[str]) -> None:
    assert tuple([line.message for line in lines] for lines in lines_of(ast.parse(source))) == (plain, repeat)
