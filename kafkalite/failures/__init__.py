"""When a message fails: retries, dead letters, and a ledger of what became of it, for a consumer group.

    policy.py, strategies.py, times.py    what a group wants: four strategies, classes of exceptions, order, limits
    session.py    THE core: events in, actions out. No I/O, no clock, no threads
    events.py, lanes.py, breaker.py, windows.py    what the core speaks of, and what it is made of
    names.py, rows.py    the names of topics; rows of the ledger

Each uses only what stands below it.
"""
