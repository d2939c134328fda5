"""Which broker has which partition: what is there (`overview.py`), what ought to be (`planner.py`, without I/O), and
the way from one to the other (`moving.py`). For any cluster, over kafkalite.client; no broker is needed in the process.
"""
