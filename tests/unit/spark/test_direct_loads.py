"""Groups of pieces for the tasks of a load: in order, each piece once, about as many in each."""

import pytest

from kafkalite.model import TopicPartition
from kafkalite.spark.load.direct import grouped
from kafkalite.spark.source.offsets import Piece
from kafkalite.spark.source.plan import ReadTask


@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_piece_is_in_one_group(pieces: int, count: int) -> None:
    tasks = [ReadTask(Piece(TopicPartition("t", number), 0, 10, 100), None) for number in range(pieces)]
    groups = grouped(tasks, count)
    assert [task for group in groups for task in group] == tasks
    assert len(groups) == min(count, pieces)
    sizes = {len(group) for group in groups}
    assert not sizes or max(sizes) - min(sizes) <= 1
