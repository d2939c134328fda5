"""Read and write ranges and tables as Arrow record batches or NumPy columns, for batch jobs.

    column_reader.py   ColumnReader: reads a range of offsets, and raises an error if it cannot read all of it
    column_writer.py   ColumnWriter: writes rows to partitions chosen by key or by a column
    arrow.py           converts record columns to Arrow and back

Both classes can create a Client from bootstrap servers.
"""
