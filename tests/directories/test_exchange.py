"""The clients' view of a data directory, before a broker ends and after its next start."""

import ast
import inspect
from pathlib import Path

import pytest

from kafkalite.broker.log import journal
from tests.directories.__main__ import exchange
from tests.directories.content import differences
from tests.kit.processes.broker import REPOSITORY


def test_differences_are_reported_with_the_first_place() -> None:
    before: dict[str, object] = {"t-0: records": [1, 2, 3], "t-0: watermarks": (0, 3), "group g": "EMPTY"}
    assert list(differences(before, dict(before))) == []
    after: dict[str, object] = {"t-0: records": [1, 2], "t-0: watermarks": (0, 3), "topic u": "new"}
    assert list(differences(before, after)) == [
        "group g: EMPTY | None",
        "t-0: records: [3, 3] | [2]",
        "topic u: None | new",
    ]


READ_BY_0_1_0 = {"topic", "partitions", "epoch_base", "delete", "overrides", "broker", "producer_ids", "unclean"}
"""The journal's lines that 0.1.0 reads; it refuses to start on any other."""
REFUSED_BY_0_1_0 = {
    "scram": "SCRAM users",
    "scram_delete": "SCRAM users",
    "scram_changes": "SCRAM users",
    "acls": "ACLs",
    "quota": "quotas",
    "secret": "a use of SASL",
    "cluster": "settings of the whole cluster",
    "group": "or of a group",
    "client_metrics": "subscriptions to client metrics",
    "features": "changed feature levels",
}
"""Line of the journal → how docs/operations.md names it."""


def test_the_documentation_lists_what_0_1_0_refuses() -> None:
    compared = [node for node in ast.walk(ast.parse(inspect.getsource(journal.apply))) if isinstance(node, ast.Compare)]
    constants = [node for each in compared for node in ast.walk(each) if isinstance(node, ast.Constant)]
    lines = {node.value for node in constants if isinstance(node.value, str)}
    assert lines >= READ_BY_0_1_0, "a newer release reads every line of an older one"
    assert lines - READ_BY_0_1_0 == set(REFUSED_BY_0_1_0)
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## Upgrade and downgrade")[2].partition("\n## ")[0]
    assert [words for words in REFUSED_BY_0_1_0.values() if words not in section] == []


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_a_directory_can_hold_is_there_after_a_restart(tmp_path: Path, end: str) -> None:
    assert exchange(tmp_path, REPOSITORY, REPOSITORY, end) == []
