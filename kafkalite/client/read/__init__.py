"""Read ranges of partitions as columns.

    reader.py      Reader: reads many partitions at once, and fetches records while it decodes earlier ones
    marks.py       the mark of a read position, to detect truncated and restored logs
    damage.py      finds the next readable batch after a corrupt one
    splitting.py   splits a range into pieces of similar size
    counting.py    counts records

Group members (`kafkalite.client.group`) and batch jobs (`kafkalite.client.columns`) use the Reader.
"""
