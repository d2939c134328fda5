"""The pytest plugin as its users meet it: an outer pytest runs an inner one that asks for the fixtures."""

from pathlib import Path

import pytest

from tests.kit.harness.samples import sample

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent

INNER_TEST = """
import json
import socket
import urllib.request

import pytest
from kafkalite import KafkaError
from kafkalite.client import Client

faults = []

def test_broker_is_there(kafka_broker):
    host, _, port = kafka_broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass

@pytest.fixture(scope="module")
def client(kafka_broker):
    with Client(kafka_broker.bootstrap_servers) as client:
        yield client

@pytest.mark.parametrize("name", ["a b", "ü/../x", "y" * 300])
def test_topic_is_fresh(client, kafka_topic, name):
    assert len(client.topics()[kafka_topic].partitions) == 1
    assert client.end_offset(kafka_topic, 0) == 0

def test_acks_all_is_answered_from_the_page_cache(kafka_broker):
    assert kafka_broker.flushes_on_acks_all is False

def test_topics_have_partitions_and_settings(client, kafka_broker, kafka_topic_factory):
    first = kafka_topic_factory(3, cleanup_policy="compact", retention_ms=1000)
    assert first.startswith("test_topics_have-partitions".replace("-", "_"))
    assert first != kafka_topic_factory()
    assert len(client.topics()[first].partitions) == 3
    settings = {entry.name: entry.value for entry in client.admin.describe_topic_configs(first)}
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact", "1000")
    assert kafka_topic_factory(name="orders") == "orders"
    with pytest.raises(KafkaError):
        kafka_topic_factory(name="orders")

def test_fault_lasts(kafka_broker):
    faults.append(kafka_broker.fail("Produce", "REQUEST_TIMED_OUT", times=None))
    assert not faults[0].ended

def test_fault_ended_with_its_test(client, kafka_topic):
    client.produce(kafka_topic, 0, [b"x"])
    assert faults[0].count == 0

def test_registry_serves_schemas(kafka_registry):
    body = json.dumps({"schema": '"string"'}).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{kafka_registry.url}/subjects/t-value/versions", body, kind)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["id"] == 1
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # so that it also works where kafkalite is not installed
    pytester.makeini("[pytest]\naddopts = -p kafkalite.testing\nfilterwarnings = error\n")
    pytester.makepyfile(INNER_TEST)
    return pytester


def test_fixtures_give_a_broker_and_fresh_topics(inner: pytest.Pytester) -> None:
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines(["kafkalite *: kafka_broker answers acks=all from the page cache (*=false)"])
    result.stdout.fnmatch_lines(["kafkalite: kafka_broker answers acks=all from the page cache (*=false)"])


@pytest.mark.slow
def test_a_brokers_modules_are_not_rewritten(inner: pytest.Pytester) -> None:
    """As pytest does with the asserts of a plugin's package: a broker imports some in threads that serve."""
    inner.makepyfile(
        "import kafkalite.broker.handlers.metadata\n"
        "def test_loader():\n"
        "    assert 'Rewriting' not in type(kafkalite.broker.handlers.metadata.__spec__.loader).__name__\n"
    )
    inner.runpytest_subprocess("-k", "test_loader").assert_outcomes(passed=1)


@pytest.mark.slow
def test_parallel_workers_have_a_broker_each(inner: pytest.Pytester) -> None:
    result = inner.runpytest_subprocess("-n", "2", "--dist", "each")
    result.assert_outcomes(passed=18)


@pytest.mark.slow
def test_settings_can_be_overridden(inner: pytest.Pytester) -> None:
    inner.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker_settings():
            return {"num.partitions": 7, "in_process": True}
    """)
    inner.makepyfile("def test_setting(kafka_broker):\n    assert kafka_broker.config.num_partitions == 7\n")
    inner.runpytest_subprocess().assert_outcomes(passed=1)


def test_pytests_own_file_has_settings_and_the_header_says_what_holds(inner: pytest.Pytester) -> None:
    inner.makeini(
        "[pytest]\naddopts = -p kafkalite.testing\nfilterwarnings = error\n"
        "kafkalite_settings =\n    flush.on.acks.all=true\n    num.partitions=7\n    in_process=true\n"
    )
    inner.makepyfile("def test_setting(kafka_broker):\n    assert kafka_broker.config.num_partitions == 7\n")
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["kafkalite *: kafka_broker answers acks=all from the disk (flush.on.acks.all=true)"])
    result.stdout.fnmatch_lines(["kafkalite: kafka_broker answers acks=all from the disk (flush.on.acks.all=true)"])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", sample([[], ["-n", "2"]], 1), ids=["one-process", "xdist"])
def test_summary_says_what_a_conftest_set(inner: pytest.Pytester, arguments: list[str]) -> None:
    inner.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker_settings():
            return {"flush.on.acks.all": True}
    """)
    inner.makepyfile("def test_it(kafka_broker):\n    assert kafka_broker.flushes_on_acks_all\n")
    result = inner.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["kafkalite *page cache*, unless kafka_broker_settings override it"])
    result.stdout.fnmatch_lines(["kafkalite: kafka_broker answers acks=all from the disk (flush.on.acks.all=true)"])


@pytest.mark.slow
def test_run_that_uses_no_broker_says_nothing_at_its_end(inner: pytest.Pytester) -> None:
    inner.makepyfile("def test_it():\n    pass\n")
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("kafkalite: *")


def test_setting_without_a_value_is_refused(inner: pytest.Pytester) -> None:
    inner.makeini("[pytest]\naddopts = -p kafkalite.testing\nkafkalite_settings = num.partitions\n")
    assert inner.runpytest_subprocess().ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("arguments", sample([[], ["-n", "1"], ["-s"]], 1), ids=["one-process", "xdist", "no-capture"])
def test_a_failed_test_shows_what_the_broker_logged_meanwhile(inner: pytest.Pytester, arguments: list[str]) -> None:
    inner.makepyfile("""
        def test_passes(kafka_topic_factory):
            kafka_topic_factory(name="of-another-test")

        def test_fails(kafka_broker):
            kafka_broker.create_topic("of-this-test")
            assert kafka_broker.in_process
    """)
    result = inner.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*- Captured kafkalite broker log call -*", "*topic created*topic=of-this-test*"])
    result.stdout.no_fnmatch_line("*topic=of-another-test*")


@pytest.mark.slow
def test_the_level_of_the_brokers_log_is_pytests(inner: pytest.Pytester) -> None:
    inner.makepyfile("def test_fails(kafka_topic):\n    assert not kafka_topic\n")
    result = inner.runpytest_subprocess("--log-level=warning")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*Captured kafkalite broker log*")


def test_a_broker_that_dies_fails_the_tests_that_use_it_and_no_others(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import os, signal

        def test_kills(kafka_broker):
            os.kill(kafka_broker._process._process.number, signal.SIGKILL)
            assert kafka_broker.failed.wait(60)
            assert not kafka_broker.running

        def test_needs_it(kafka_topic):
            pass

        def test_without_it():
            pass
    """)
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=2)  # what needs it, and the end of the session's fixture
    result.stdout.fnmatch_lines(["*RuntimeError: the broker's process * ended*"])
