"""How many rows a load lets Spark put into an Arrow batch."""

from kafkalite.load.plan import LoadRound
from kafkalite.model import TopicPartition
from kafkalite.spark.load.arrow_batches import ROWS_MAX, SAMPLES, SIZE_TARGET, measured, places_of, rows_for

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_rows_of_a_batch_fall_with_the_size_of_records() -> None:
    assert [rows_for(size) for size in (0, 1, 200, 100 * 1024, SIZE_TARGET, 10 * SIZE_TARGET)] == [
        ROWS_MAX, ROWS_MAX, ROWS_MAX, 163, 1, 1,
    ]  # fmt: skip


def test_samples_are_spread_over_a_round() -> None:
    part = LoadRound({A: 100, B: 7, C: 0}, {A: 500, B: 8, C: 399}, 1, 1.0)
    assert places_of(part) == [
        (A, 100), (A, 200), (A, 300), (A, 400), (B, 7), (C, 99), (C, 199), (C, 299),
    ]  # fmt: skip
    few = places_of(LoadRound({A: 5}, {A: 7}, 1, 1.0))
    assert few == [(A, 5), (A, 6)]
    assert len(places_of(LoadRound({A: 0}, {A: 10**9}, 1, 1.0))) == SAMPLES


def test_what_tasks_measured_is_no_file() -> None:
    assert measured(["{}", "record size 20.5", "record size 0.0"]) == (["{}"], 20.5)
    assert measured(["record size 0.0"]) == ([], None)
