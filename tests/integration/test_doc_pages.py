"""Each page of docs/ works from its first line: its blocks run in order, against a separate broker."""

from pathlib import Path

import pytest

from kafkalite.testing import KafkaBroker
from tests.kit.harness.doc_pages import DOCS, PageRun, blocks_of
from tests.kit.harness.samples import sample

pytestmark = pytest.mark.integration

LONG = (
    "audit.md",
    "coming-from.md",
    "data-engineer.md",
    "delivery.md",
    "failures-for-java.md",
    "kafka-0.7.md",
    "mirror.md",
    "query.md",
    "security.md",
    "shell.md",
    "track.md",
)
"""Pages with many commands or pauses."""
QUICK = ("client.md", "failures.md", "failures-options.md", "metrics.md", "operations.md", "quotas.md", "registry.md")
WITH_SPARK = ("load.md", "spark.md", "streams.md")
"""Run by tests/spark/test_docs_examples.py."""
ELSEWHERE = {
    "cluster.md": "tests/integration/test_cluster_page.py",
    "moving.md": "tests/integration/test_moving_from_kafka.py",
    "testing.md": "tests/integration/test_testing_docs.py",
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a reader leaves closing a client to the interpreter
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", sample([*QUICK, *LONG], len(QUICK)))
def test_a_page_works_from_its_first_line(name: str, tmp_path: Path) -> None:
    settings = {"listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0", "offsets.topic.num.partitions": 4}
    with KafkaBroker(settings, flush_on_acks_all=False, in_process=True) as broker:
        classic = broker.classic_endpoint
        assert classic is not None
        with PageRun(name, tmp_path, {9092: broker.port, 9072: classic.port}) as page:
            assert page.run() >= 1


def test_a_comment_speaks_of_the_block_below_it_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "```sh\n{}\n```\n"
    page.write_text(
        f"<!-- not run: one -->\n{block.format(1)}\n{block.format(2)}\n<!-- not run: two -->\n{block.format(3)}"
        f"<!-- not run: nothing follows -->\n\n{block.format(4)}"
    )
    found = [(block.text, block.reason) for block in blocks_of(page)]
    assert found == [("1\n", "one"), ("2\n", None), ("3\n", "two"), ("4\n", None)]


def test_every_block_of_every_page_is_run_or_says_why_not() -> None:
    covered = {*QUICK, *LONG, *WITH_SPARK, *ELSEWHERE}
    untold = {
        f"{path.name}:{block.line}"
        for path in DOCS.glob("*.md")
        if path.name not in covered
        for block in blocks_of(path)
        if block.reason is None
    }
    assert untold == set(), "add the page above, or `<!-- not run: why -->` above the block"
