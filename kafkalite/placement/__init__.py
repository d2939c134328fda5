"""Place partitions on brokers: the present state (`overview.py`), the wanted state (`planner.py`, without I/O), and the
moves between them (`moving.py`). Works with any cluster through kafkalite.client; no broker runs in the process.
"""
