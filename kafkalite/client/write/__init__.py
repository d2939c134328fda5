"""Write columns to partitions, with retries and transactions.

    producer.py       Producer: sends columns as batches, several requests in flight, with retries
    transactions.py   the transactions of one transactional id: fencing, added partitions, commit and abort
    partitioning.py   maps keys to partitions

Arrow tables are converted to columns in `kafkalite.client.columns`.
"""
