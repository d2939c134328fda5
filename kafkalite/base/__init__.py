"""Utilities that all packages may use: time, threads, logging, ACLs and others.

    clock             clocks that a test can replace
    executors         threads that a test can replace
    randomness        random numbers that a test can replace
    times             parses times on the command line and in the console
    numbers           parses whole numbers
    pool              runs jobs that wait for a disk (the I/O pool)
    deferred          a response that is completed later
    wakeup            wakes a thread that waits in a selector
    ending            SIGTERM and Ctrl-C for long-running commands
    acls              ACLs as in Kafka's protocol
    quota_entities    quota entities as in Kafka's protocol
    logging           formats log lines
    metric_families   the interface for metrics
    forks             makes a forked child give up its parent's brokers and clients
    lazy              imports names when they are first used
    dataclass         fast data classes
    plugins           creates objects of classes that settings name
    regex             regular expressions with RE2
    http_ask          HTTP requests with a deadline
    extras            the pip command that installs an extra
    available_memory  the memory that this process can use
    shortage          keeps threads alive when memory runs out

The packages `kafkalite.broker.log` and `kafkalite.broker.coordinator` use files, time, threads and random numbers only
through these interfaces. `tests/test_seams.py` finds code that bypasses them.

    resource        interface                                   replaced in a simulation by
    files, reads    broker.log.disk                             disk.instead(...)
    files, writes   _native.base.file_ops                       a fault plan (file_ops.arm)
    time            clock, passed as a parameter                FakeClock
    threads         executors, passed as a parameter            a scheduler with a seed
    random numbers  randomness, for ids, names and jitter       randomness.drawn_from(...)
"""
