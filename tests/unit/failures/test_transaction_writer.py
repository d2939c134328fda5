"""The record of a transaction that was too large for its topic."""

import pytest

from kafkalite.failures.events import Goal, Message, Put, Transact
from kafkalite.failures.transaction_writer import SIZE_MAX, Ended, TransactionFailed, refused

LETTER, OUTPUT = Goal.RETRY, Goal.OUTPUT


def place_of(puts: list[tuple[Goal, str, int]], limits: dict[str, int], topic: str = "") -> int:
    message = Message("orders", 0, 0, 0, None, None)
    transact = Transact(1, tuple([Put(goal, name, 0, message) for goal, name, _ in puts]), (), {})
    error = TransactionFailed("too large", too_large=True, topic=topic)
    return refused(Ended(transact, error, tuple([size for _, _, size in puts])), limits.__getitem__)


def test_the_largest_record_of_the_topic_that_the_client_names_was_too_large() -> None:
    puts = [(LETTER, "retry", 9000), (OUTPUT, "done", 10), (OUTPUT, "done", 2000), (OUTPUT, "wide", 5000)]
    assert place_of(puts, {}, "done") == 2


def test_without_a_named_topic_it_is_the_record_that_exceeds_the_limit_of_its_own_topic_most() -> None:
    puts = [(LETTER, "retry", 9000), (OUTPUT, "done", 1100), (OUTPUT, "done", 2000), (OUTPUT, "wide", 5000)]
    assert place_of(puts, {"retry": 10_000, "done": 1000, "wide": 5000}) == 2


def test_without_a_known_limit_an_output_is_chosen_before_a_letter_that_would_lose_its_value() -> None:
    puts = [(LETTER, "retry", 9000), (LETTER, "retry", 9001), (OUTPUT, "done", 2000)]
    assert place_of(puts, {"retry": SIZE_MAX, "done": SIZE_MAX}) == 2
    assert place_of(puts, {"retry": SIZE_MAX, "done": 3000}) == 1


@pytest.mark.parametrize("topic", ["", "ledger"])
def test_a_letter_that_fits_its_topic_is_never_chosen(topic: str) -> None:
    with pytest.raises(TransactionFailed, match="too large"):
        place_of([(LETTER, "retry", 9000), (OUTPUT, "done", 2000)], {"retry": 10_000, "done": 3000}, topic)
