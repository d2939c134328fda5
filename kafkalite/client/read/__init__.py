"""Reading ranges of partitions as columns.

    reader.py      Reader: many partitions at once, the next fetch under way while one is decoded
    splitting.py   a range in pieces of about the same number of bytes, found by looking at single batches

Members of groups read through it (`kafkalite.client.group`), and so do batch jobs (`kafkalite.client.columns`).
"""
