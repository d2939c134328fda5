"""The tour of docs/registry.md runs, one example after the other, against a broker and a registry."""

import re
from pathlib import Path

import pytest

from kafkalite.schema_registry.server import RegistryServer
from tests.kit.processes.schema_registry import call

pytestmark = pytest.mark.integration

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "registry.md"


@pytest.fixture
def registry(kafka_broker, kafka_topic: str):
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=f"schemas-{kafka_topic}"[:249]) as server:
        yield server


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a reader leaves closing confluent's client to the interpreter
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_examples_run(kafka_broker, registry: RegistryServer) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 3
    names: dict[str, object] = {"bootstrap": kafka_broker.bootstrap_servers, "url": registry.url}
    for example in examples:
        exec(compile(example, str(DOCUMENT), "exec"), names)  # noqa: S102  # our own text
    names["registry"].close()


def test_requests_of_the_terminal_tour_are_served(registry: RegistryServer) -> None:
    (tour,) = (block for block in re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "curl" in block)
    (body,) = re.findall(r"-d '(.*)'", tour)
    paths = re.findall(r"localhost:8081(\S+)", tour)
    headers = {"Content-Type": "application/json"}
    assert call(registry.address, "POST", paths[0], body.encode(), headers)[:2] == (200, {"id": 1})
    assert [call(registry.address, "GET", path)[0] for path in paths[1:]] == [200, 200]
