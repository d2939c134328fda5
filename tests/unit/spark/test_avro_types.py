"""Decoded columns in the types that Spark has: finer times are cut, and no value ends a query."""

import datetime as dt

import pyarrow as pa

from kafkalite.load.avro_values import as_spark, spark_type


def test_times_are_cut_to_the_microsecond() -> None:
    kind = pa.struct([("at", pa.timestamp("ns", tz="UTC")), ("of_day", pa.time64("us"))])
    values = pa.array([{"at": 1_234_567_891, "of_day": 5}, None], kind)
    found = as_spark(values, spark_type(kind)).to_pylist()
    assert found == [{"at": dt.datetime(1970, 1, 1, 0, 0, 1, 234_567, tzinfo=dt.UTC), "of_day": 5}, None]


def test_a_time_that_does_not_fit_ends_no_query() -> None:
    kind = pa.struct([("at", pa.timestamp("ms", tz="UTC"))])
    values = pa.StructArray.from_arrays([pa.array([2**62, 0], pa.int64()).cast(kind[0].type)], fields=list(kind))
    found = as_spark(values, spark_type(kind))
    assert found.type == spark_type(kind)
    assert found.field(0).cast(pa.int64()).to_pylist()[1] == 0
