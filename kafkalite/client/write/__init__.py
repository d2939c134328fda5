"""Write columns to partitions.

    producer.py       Producer: batches from columns, several in flight, with retries
    transactions.py   the transactions of one transactional id: fencing, contents, commit and abort

Arrow tables are converted to columns in `kafkalite.client.columns`.
"""
