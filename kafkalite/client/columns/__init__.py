"""Ranges and tables as Arrow record batches or NumPy columns: what batch jobs read and write.

    column_reader.py   ColumnReader: a range of offsets, complete or an error
    column_writer.py   ColumnWriter: rows to the partitions that their keys or their column say
    arrow.py           record columns to Arrow's memory and back

Both make a Client of their own from bootstrap servers, so they stand above the front door.
"""
