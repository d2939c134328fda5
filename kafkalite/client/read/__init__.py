"""Read ranges of partitions as columns.

    reader.py      Reader: many partitions at once; fetches the next records while it decodes the last ones
    splitting.py   splits a range into pieces of similar size by looking at single batches

Group members (`kafkalite.client.group`) and batch jobs (`kafkalite.client.columns`) read through it.
"""
