"""The error table agrees with the protocol's own, as kio gives it."""

import pickle

import pytest
from kio.schema.errors import ErrorCode as Oracle

from kafkalite import errors
from kafkalite.errors import ConfigError, ErrorCode, KafkaError, StartupError, error_for


@pytest.mark.parametrize("oracle", list(Oracle), ids=lambda code: code.name)
def test_code_name_and_retriable_are_the_protocols(oracle: Oracle) -> None:
    code = ErrorCode(int(oracle))
    assert code.name == oracle.name.upper()
    if code != ErrorCode.NONE:
        assert code.retriable is oracle.retriable
        assert (error_for(code).code, error_for(code).retriable) == (code, oracle.retriable)


def test_each_code_has_a_distinct_message() -> None:
    texts = [code.text for code in ErrorCode]
    assert len(set(texts)) == len(texts)
    assert all(text.endswith(".") for text in texts)


def test_error_for_known_code_carries_the_message() -> None:
    error = error_for(3, "no topic orders")
    assert isinstance(error, errors.UnknownTopicOrPartition)
    assert (error.code, error.name, error.retriable, str(error)) == (
        3,
        "UNKNOWN_TOPIC_OR_PARTITION",
        True,
        "no topic orders",
    )


def test_error_for_unknown_code_keeps_the_number() -> None:
    error = error_for(999)
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "999" in str(error)


def test_a_code_without_a_class_is_a_plain_error_that_knows_its_code() -> None:
    error = error_for(ErrorCode.LEADER_NOT_AVAILABLE)
    assert type(error) is KafkaError
    assert (error.name, error.retriable) == ("LEADER_NOT_AVAILABLE", True)
    assert str(error) == "The partition has no leader at this moment."
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # a worker process of Spark sends it to its driver
    assert (copy.code, str(copy)) == (error.code, str(error))


def test_success_is_no_error() -> None:
    with pytest.raises(ValueError, match="0 is success"):
        error_for(0)


def test_a_second_class_for_a_code_fails() -> None:
    with pytest.raises(AssertionError, match="both claim code 3"):
        type("Twin", (KafkaError,), {}, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_config_error_is_a_startup_error_that_names_its_key() -> None:
    error = ConfigError("num.partitions", "must be at least 1")
    assert isinstance(error, StartupError)
    assert str(error) == "num.partitions: must be at least 1"
