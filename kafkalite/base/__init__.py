"""Tools that every package shares and that know neither broker nor log: time, threads, randomness, logging, ACLs.

    clock, executors, randomness  time, threads and random numbers as parameters (see below)
    times                       parsing of times that people write
    pool, deferred, wakeup      the I/O pool; a response that any thread completes later; a wake-up for a selector
    ending                      SIGTERM and Ctrl-C of a program that runs until it gets them
    acls, quota_entities        ACLs and quota entities as in Kafka's protocol
    logging, metric_families    log lines; metrics by name and labels, collected at each scrape
    forks                       how a forked child gives up its parent's brokers and clients
    lazy, dataclass, plugins    names imported when first used; fast data classes; classes that settings name
    regex, http_ask, extras     RE2 expressions; HTTP requests with a deadline; the command that installs an extra
    available_memory, shortage  the memory that is available; how a thread survives when memory runs out

Seams. `kafkalite.broker.log` and `kafkalite.broker.coordinator` reach files, time, threads and randomness through one
seam each, which a test can replace (`tests/test_seams.py` finds code that bypasses them):

    files    broker.log.disk reads, _native.base.file_ops changes   disk.instead(...); a fault plan (file_ops.arm)
    time     clock, a parameter                                     FakeClock
    threads  executors, a parameter; timers are a worker of them    executors that take turns by a seed
    randomness  randomness (ids, names, jitter)                     randomness.drawn_from(seed)

A part waits only in `Event.wait`; instead of waiting for more work, its turn ends and it is called again. So one thread
can run all parts. A lock is held only while code runs, and is no seam. Sort a set before its items reach the disk or a
queue: the order of a set differs between processes, and a seed must give the same run in each.
"""
