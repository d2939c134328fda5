"""Read and write ranges and tables as Arrow record batches or NumPy columns, for batch jobs.

    column_reader.py   ColumnReader: a range of offsets, complete or an error
    column_writer.py   ColumnWriter: rows to the partitions given by their keys or a column
    arrow.py           record columns to Arrow memory and back

Both classes can create a Client from bootstrap servers, so they are above it in the order of modules.
"""
