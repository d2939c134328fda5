"""What every package shares and what knows neither broker nor log: time, threads, randomness, log lines, small tools.

    clock, executors, randomness  time, threads and random numbers as parameters (see below)
    times                       times as people write them
    pool, deferred, wakeup      the I/O pool; an answer that any thread gives later; what wakes a thread in a selector
    ending                      SIGTERM and Ctrl-C of a program that runs until it gets them
    acls, quota_entities        ACLs and quota entities as the wire has them
    logging, metric_families    log lines; metrics by name and labels, read at a scrape
    forks                       what a forked child keeps of its parent's brokers and clients: nothing
    lazy, dataclass, plugins    names imported when first used; cheap data classes; classes that settings name
    regex, http_ask, extras     safe regular expressions; HTTP documents in bounded time; how to install an extra
    available_memory, shortage  how much memory there is; how a thread survives when none is left

Seams. `kafkalite.broker.log` and `kafkalite.broker.coordinator` reach the world through one seam each, so that a test
can replace it (`tests/test_seams.py` finds what bypasses them):

    files    broker.log.disk reads, _native.base.file_ops changes   disk.instead(...); a fault plan (file_ops.arm)
    time     clock, a parameter                                     FakeClock
    threads  executors, a parameter; timers are a worker of them    executors that take turns by a seed
    randomness  randomness (ids, names, jitter)                     randomness.drawn_from(seed)

A part waits in `Event.wait` alone: otherwise its turn ends and it is called again. So one thread can run all parts. A
lock is held only while something runs, and is no seam. Sort a set before its items reach the disk or a queue: its order
differs between processes, and a seed must give the same run in each.
"""
