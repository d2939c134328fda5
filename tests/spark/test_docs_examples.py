"""The examples of docs/spark.md run, one after the other, in a session against a broker."""

import re
from pathlib import Path

import pytest

from kafkalite.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.integration]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_examples_run(spark, kafka_broker, tmp_path: Path) -> None:
    kafka_broker.create_topic("readings")
    kafka_broker.create_topic("loud")
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce("readings", 0, [b"21.5", b"20.7", b"22.0"])
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 3
    names: dict[str, object] = {"bootstrap": kafka_broker.bootstrap_servers, "directory": str(tmp_path)}
    for example in examples:
        exec(compile(example, str(DOCUMENT), "exec"), names)  # noqa: S102  # our own text
