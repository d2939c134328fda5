"""The pages about Spark work from their own first lines: their blocks run in order, in a session against a broker."""

import re
from pathlib import Path

import pytest

from kafkalite.testing import KafkaBroker
from tests.integration.test_doc_pages import WITH_SPARK
from tests.kit.harness.doc_pages import PageRun
from tests.kit.processes.broker import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.mark.parametrize("name", WITH_SPARK)
def test_a_page_works_from_its_first_line(spark: object, tmp_path: Path, name: str) -> None:
    with (
        KafkaBroker(flush_on_acks_all=False) as broker,
        PageRun(name, tmp_path, {9092: broker.port}) as page,
    ):
        assert page.run() >= 2


def test_the_example_of_the_readme_shows_what_it_wrote(spark: object, capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n([^`]*kafkalite[.]spark[^`]*)```", text)
    with KafkaBroker(flush_on_acks_all=False) as broker:
        broker.create_topic("words")
        assert "127.0.0.1:9092" in example
        exec(compile(example.replace("127.0.0.1:9092", broker.bootstrap_servers), "README.md", "exec"), {})  # noqa: S102
    shown = [line.split("|")[1:5] for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in row] for row in shown[1:]]
    assert [row[2:] for row in rows] == [["0", "0"], ["0", "1"]]
    assert sorted(row[:2] for row in rows) == [["a", "warm"], ["b", "cold"]], "two tasks write, either may be first"
