"""The examples of docs/client.md run, one after the other, against a broker."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "client.md"


def test_examples_run(kafka_broker) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 4
    names: dict[str, object] = {"bootstrap": kafka_broker.bootstrap_servers}
    for example in examples:
        exec(compile(example, str(DOCUMENT), "exec"), names)  # noqa: S102  # our own text
