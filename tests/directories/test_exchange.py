"""What is seen of a data directory, before a broker ends and behind its next start."""

from pathlib import Path

import pytest

from tests.directories.__main__ import exchange
from tests.directories.content import differences
from tests.kit.processes.broker import REPOSITORY


def test_what_differs_is_told_with_the_first_place() -> None:
    before: dict[str, object] = {"t-0: records": [1, 2, 3], "t-0: watermarks": (0, 3), "group g": "EMPTY"}
    assert list(differences(before, dict(before))) == []
    after: dict[str, object] = {"t-0: records": [1, 2], "t-0: watermarks": (0, 3), "topic u": "new"}
    assert list(differences(before, after)) == [
        "group g: EMPTY | None",
        "t-0: records: [3, 3] | [2]",
        "topic u: None | new",
    ]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_a_directory_can_hold_is_there_after_a_restart(tmp_path: Path, end: str) -> None:
    assert exchange(tmp_path, REPOSITORY, REPOSITORY, end) == []
