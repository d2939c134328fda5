"""The examples of the documents about Spark run, one after the other, in a session against a broker."""

import re
from pathlib import Path

import pytest

from kafkalite.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.integration]

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "topics", "count"),
    [("spark.md", ("readings", "loud"), 3), ("load.md", ("clicks",), 2), ("streams.md", ("visits",), 1)],
)
def test_examples_run(spark, kafka_broker, tmp_path: Path, name: str, topics: tuple[str, ...], count: int) -> None:
    for topic in topics:
        kafka_broker.create_topic(topic)
    with Client(kafka_broker.bootstrap_servers) as client:
        client.produce(topics[0], 0, [b"21.5", b"20.7", b"22.0"])
    examples = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= count
    names: dict[str, object] = {"bootstrap": kafka_broker.bootstrap_servers, "directory": str(tmp_path)}
    for example in examples:
        exec(compile(example, name, "exec"), names)  # noqa: S102  # our own text
