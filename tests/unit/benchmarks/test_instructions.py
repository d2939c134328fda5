"""The instruction benchmark's content of a data directory before a broker's first start."""

from pathlib import Path

from benchmarks.instructions import UNREACHED, write_quotas, write_rules
from kafkalite.broker.log.offline_journal import open_journal


def test_a_new_directory_takes_rules_and_quotas(tmp_path: Path) -> None:
    write_rules(tmp_path / "data", 10)
    write_quotas(tmp_path / "data")
    with open_journal(str(tmp_path / "data")) as journal:
        assert len(journal.state.acls) == 10
        [limits] = journal.state.quotas.values()
        assert [*limits.values()] == [UNREACHED] * 3
