"""Dead-letter topics by exception class: which one a letter goes to, and mappings that are none."""

from typing import Any

import pytest

from kafkalite import failures
from kafkalite.failures.dead_topics import published
from kafkalite.failures.policy import Policy, summary
from kafkalite.failures.policy_file import policy_of

ROUTES: dict[type[BaseException], str] = {
    KeyError: "orders.unknown",
    LookupError: "orders.lost",
    OSError: "orders.lost",
}


def handle(order: failures.Message) -> None:
    match order.value:
        case b"key":
            raise KeyError
        case b"index":
            raise IndexError
        case b"cause":
            raise RuntimeError("no disk") from OSError()
        case b"other":
            raise RuntimeError


@pytest.mark.parametrize("strategy", [failures.RetryHere(1), failures.RetryTopics(["1 s"])])
def test_a_letter_goes_to_the_topic_of_the_first_class_that_fits_also_by_its_cause(strategy: Any) -> None:
    bill = failures.handler(topics=["orders", "returns"], group="billing", strategy=strategy, dead_topics=ROUTES)(
        handle
    )
    told = []
    bill.dead(lambda letter: told.append((letter.letter.topic, letter.record.topic, letter.record.value)))
    values: list[Any] = [b"key", b"index", b"cause", b"other", failures.Message("returns", 3, 0, 0, None, b"key")]
    tried = bill.try_records(values)
    wanted = [
        ("dlq.billing.orders", "orders", b"other"),
        ("orders.lost", "orders", b"cause"),
        ("orders.lost", "orders", b"index"),
        ("orders.unknown", "orders", b"key"),
        ("orders.unknown", "returns", b"key"),
    ]
    assert sorted((one.letter.topic, one.record.topic, one.record.value) for one in tried.dead_lettered) == wanted
    assert sorted(told) == wanted


def test_a_value_that_cannot_be_decoded_is_routed_by_its_error() -> None:
    bill = failures.handler(
        topics="orders", group="billing", retry=["1 s"], decode=int, dead_topics={ValueError: "orders.damaged"}
    )(handle)
    (dead,) = bill.try_records([b"x"]).dead_lettered
    assert dead.letter.topic == "orders.damaged"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dead_topics": "x"}, "dead_topics must be a dict of exception classes and topics"),
        ({"dead_topics": {KeyError: 3}}, "not {<class 'KeyError'>: 3}"),
        ({"dead_topics": {"KeyError": "x"}}, "dead_topics: 'KeyError' is not an exception class"),
        ({"dead_topics": {KeyError: "orders"}}, "dead_topics has 'orders', which is another topic of the policy"),
        ({"dead_topics": {KeyError: "dlq.billing.orders"}}, "which is another topic of the policy"),
        ({"dead_topics": {KeyError: "retry.billing.orders.1s"}}, "which is another topic of the policy"),
        ({"dead_topics": {KeyError: "kafkalite.failures.billing"}}, "which is another topic of the policy"),
        ({"dead_topics": {KeyError: "a b"}}, "the policy needs topic 'a b'"),
        ({"dead_topics": {KeyError: "dlq_billing_orders"}}, "whose names collide in Kafka"),
        ({"dead_topics": {KeyError: "x"}, "strategy": failures.Ignore(), "retry": None}, "would get no dead letters"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        failures.handler(topics="orders", group="billing", **{"retry": ["1 s"], **options})
    assert error in str(caught.value)


def test_the_mapping_in_a_wrong_place_is_refused_with_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"RetryTopics has no dead_topics; it belongs to Policy and @failures.handler"):
        failures.RetryTopics(["1 s"], dead_topics=ROUTES)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"run has no dead_topics; it belongs to Policy and @failures.handler"):
        failures.handler(topics="t", group="g", retry=["1 s"])(handle).run(dead_topics=ROUTES)


def test_a_file_has_classes_by_name_and_the_ledger_has_the_topics() -> None:
    document = {
        "group": "billing",
        "topics": ["orders"],
        "strategy": {"kind": "RetryHere", "attempts": 1},
        "dead_topics": {"KeyError": "orders.unknown", "kafkalite.errors:StartupError": "orders.late"},
    }
    made = policy_of(document)
    assert [(kind.__name__, topic) for kind, topic in made.dead_topics.items()] == [
        ("KeyError", "orders.unknown"),
        ("StartupError", "orders.late"),
    ]
    assert published(summary(made)) == {"orders.unknown", "orders.late"}
    assert published(summary(Policy(group="g", topics=["t"], strategy=failures.Ignore()))) == frozenset()
    assert published(None) == published({"dead_topics": "x"}) == frozenset()
    with pytest.raises(ValueError, match=r"dead_topics must be a dict .* not 'x'"):
        policy_of({**document, "dead_topics": "x"})
    with pytest.raises(ValueError, match="'Nothing' is not an exception class"):
        policy_of({**document, "dead_topics": {"Nothing": "x"}})
