"""Writing columns to partitions.

    producer.py       Producer: batches from columns, several in flight, sent again when need be
    transactions.py   the transactions of one transactional id: who may write, what is part of one, how it ends

Arrow's tables are made columns in `kafkalite.client.columns`.
"""
