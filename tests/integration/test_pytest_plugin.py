"""The pytest plugin as its users meet it: an outer pytest runs an inner one that asks for the fixtures."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent

INNER_TEST = """
import socket
import pytest

def test_broker_is_there(kafka_broker):
    host, _, port = kafka_broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass

@pytest.mark.parametrize("name", ["a b", "ü/../x", "y" * 300])
def test_topic_is_fresh(kafka_broker, kafka_topic, name):
    topic = kafka_broker.logs.topics[kafka_topic]
    assert len(topic.partitions) == 1
    assert topic.partitions[0].log_end_offset == 0

def test_acks_all_is_answered_from_the_page_cache(kafka_broker):
    assert kafka_broker.config.flush_on_acks_all is False
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # so that it also works where kafkalite is not installed
    pytester.makeini("[pytest]\naddopts = -p kafkalite.testing\nfilterwarnings = error\n")
    pytester.makepyfile(INNER_TEST)
    return pytester


def test_fixtures_give_a_broker_and_fresh_topics(inner: pytest.Pytester) -> None:
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["kafkalite *: kafka_broker answers acks=all from the page cache"])


def test_parallel_workers_have_a_broker_each(inner: pytest.Pytester) -> None:
    result = inner.runpytest_subprocess("-n", "2", "--dist", "each")
    result.assert_outcomes(passed=10)


def test_settings_can_be_overridden(inner: pytest.Pytester) -> None:
    inner.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker_settings():
            return {"num.partitions": 7}
    """)
    inner.makepyfile("def test_setting(kafka_broker):\n    assert kafka_broker.config.num_partitions == 7\n")
    inner.runpytest_subprocess().assert_outcomes(passed=1)
