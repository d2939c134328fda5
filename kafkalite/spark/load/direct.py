"""Load a round of records in Spark's tasks without a DataFrame, for loads that transform nothing.

    driver   pieces of the round ─▶ groups, one per task
    task     ranges ─▶ record batches ─▶ files, in one Python worker

A DataFrame would pass every record from Python to Java and back to Python. That would take most of a load's CPU time.

Thread rule: the functions share no state.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

from kafkalite.client.columns.arrow import COLUMNS
from kafkalite.load.parquet import RESULT, write
from kafkalite.load.storage import LoadError
from kafkalite.spark.options import SourceOptions, includes_headers
from kafkalite.spark.source.offsets import DataLoss
from kafkalite.spark.source.plan import client_for, plan_tasks
from kafkalite.spark.source.reading import read_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kafkalite.load.parquet import Writing
    from kafkalite.spark.source.plan import ReadTask


def results_of(spark: SparkSession, given: Mapping[str, str], writing: Writing, task_count: int) -> list[Any]:
    """Load the ranges that the source's options name, in at most `task_count` tasks. Return the rows of `write`.

    Raises LoadError if records are missing.
    """
    options = SourceOptions.parse(given)
    columns = [name for name in COLUMNS if name != "headers" or includes_headers(given)]
    try:
        tasks = plan_tasks(client_for(options.client), options)
    except DataLoss as error:
        raise LoadError(str(error)) from error
    groups = grouped(tasks, task_count)
    if not groups:
        return []
    load = functools.partial(load_groups, writing, options, columns, groups)
    return list(spark.range(0, len(groups), 1, len(groups)).mapInArrow(load, RESULT).collect())


def grouped(tasks: Sequence[ReadTask], count: int) -> list[list[ReadTask]]:
    """Divide tasks, in order, into at most `count` groups of about the same number of tasks."""
    count = min(count, len(tasks))
    cuts = [len(tasks) * number // count for number in range(count + 1)] if count else []
    return [list(tasks[first:last]) for first, last in itertools.pairwise(cuts)]


def load_groups(
    writing: Writing,
    options: SourceOptions,
    columns: Sequence[str],
    groups: Sequence[Sequence[ReadTask]],
    numbers: Iterator[Any],
) -> Iterator[Any]:
    """Write the records of the groups with these numbers. Runs in a task."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            read = (read_task(options, columns, task) for task in groups[number])
            yield from write(writing, itertools.chain.from_iterable(read))
