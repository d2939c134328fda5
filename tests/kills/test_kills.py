"""Some kills, and planted faults, which have to be found. `make prove FAMILY=kills` does two hundred."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.broker.log.journal import decode_line, encode_line
from tests.kills import campaign
from tests.kills.storm import ENTITIES, IN_FLIGHT, KINDS, QUOTA_KEY, Promises
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess

SEED = 9


@pytest.mark.integration
def test_some_kills_lose_nothing_and_are_not_done_again(tmp_path: Path) -> None:
    rows_file = tmp_path / "rows"
    campaign.run(1, rows_file, print)
    rows = campaign.run(2, rows_file, print)
    assert [json.loads(line) for line in rows_file.read_text().splitlines()] == rows
    counts = campaign.summary(rows)
    assert counts["kills"] >= 2
    assert counts["acknowledged"] >= campaign.CHANGES_MIN * len(rows)
    assert counts["findings"] == 0, rows


def forgotten(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the last changes, of which some were acknowledged."""
    return lines[: -2 * IN_FLIGHT * len(KINDS) * 2]


def without_a_rule(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without one of two rules that belong together."""
    at = max(i for i, line in enumerate(lines) if line["op"] == "acls" and line["add"])
    name = lines[at]["add"][0][1]
    changed = {**lines[at], "add": lines[at]["add"][1:]}
    later = [line for line in lines[at + 1 :] if not any(rule[1] == name for rule in line.get("remove", ()))]
    return [*lines[:at], changed, *later]


def with_a_stranger(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines with additional quotas that no client set."""
    entries = [{"entity": {kind: "stranger"}, "key": QUOTA_KEY, "value": 1e9} for kind in ENTITIES]
    return [*lines, {"op": "quota", "changes": entries}]


@pytest.mark.integration
@pytest.mark.parametrize("fault", sample([forgotten, without_a_rule, with_a_stranger], 1))
def test_a_broker_that_is_not_as_it_promised_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(campaign, "START_KILLED", 0.0)
    series = campaign.Series(tmp_path, SEED)
    kill = BrokerProcess.kill

    def kill_and_spoil(broker: BrokerProcess) -> None:
        kill(broker)
        journal = broker.data_dir / "metadata.journal"
        lines = [decode_line(line) for line in journal.read_bytes().split(b"\n")]
        journal.write_bytes(b"".join(map(encode_line, fault([line for line in lines if line]))))

    try:
        monkeypatch.setattr(BrokerProcess, "kill", kill_and_spoil)
        findings = series.kill(SEED).findings
        monkeypatch.undo()
        assert findings, fault.__doc__
    finally:
        monkeypatch.undo()
        series.close()


def test_what_was_acknowledged_or_asked_for_since_is_right_and_nothing_else() -> None:
    promises = Promises({"a": [None]})
    for value in (1, 2, None):
        promises.begin("a", value)
    promises.acknowledge("a")
    assert promises.in_doubt == 2
    for value in (1, 2, None):
        assert not [*promises.judge({"a": value} if value else {})]
    assert [*promises.judge({"a": 3})] == ["a has 3, not one of [1, 2, None]"]
    assert [*promises.judge({"a": 1, "b": 7})] == ["b has 7 and was never asked for"]
    assert promises.settle({"a": 2}) == 1
    assert promises.names == {"a": [2]}
    assert [*promises.judge({})] == ["a has None, not one of [2]"]
