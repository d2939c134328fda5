"""Tools that every package may use and that are independent of Kafka's bytes: time, threads, logging, ACLs and others.

    clock, executors, randomness  time, threads and random numbers as parameters (see below)
    times                       parsing of times that people write
    pool, deferred, wakeup      the I/O pool; a response that any thread completes later; a wake-up for a selector
    ending                      SIGTERM and Ctrl-C for programs that run until they receive one of them
    acls, quota_entities        ACLs and quota entities as in Kafka's protocol
    logging, metric_families    log lines; metrics by name and labels, collected at each scrape
    forks                       making a forked child give up its parent's brokers and clients
    lazy, dataclass, plugins    names imported when first used; fast data classes; classes that settings name
    regex, http_ask, extras     RE2 expressions; HTTP requests with a deadline; the command that installs an extra
    available_memory, shortage  the memory that is available; keeping threads alive when memory runs out

Seams. `kafkalite.broker.log` and `kafkalite.broker.coordinator` access files, time, threads and randomness only through
one interface for each of them (a seam), which a test can replace. `tests/test_seams.py` finds code that bypasses them:

    files    broker.log.disk reads, _native.base.file_ops changes   disk.instead(...); a fault plan (file_ops.arm)
    time     clock, a parameter                                     FakeClock
    threads  executors, a parameter; timers are a worker of them    executors that take turns by a seed
    randomness  randomness (ids, names, jitter)                     randomness.drawn_from(seed)

In a simulation one thread runs all parts of the broker. Therefore a part waits only in `Event.wait`. When a part has no
more work, its turn ends, and it is called again later. Code that holds a lock never waits, so locks need no seam. The
order of a set differs between processes, but the same seed must give the same run in every process. So sort a set
before its items reach the disk or a queue.
"""
