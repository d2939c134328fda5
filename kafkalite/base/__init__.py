"""Utilities that all packages may use: time, threads, logging, ACLs and others.

They do not depend on Kafka's message formats.

    clock, executors, randomness  time, threads and random numbers, which a test can replace (see below)
    times                       parsing of times on the command line and in the console
    pool, deferred, wakeup      the I/O pool; a response that is completed later; a wake-up for a selector
    ending                      SIGTERM and Ctrl-C for long-running commands
    acls, quota_entities        ACLs and quota entities as in Kafka's protocol
    logging, metric_families    log lines; the interface for metrics
    forks                       makes a forked child give up its parent's brokers and clients
    lazy, dataclass, plugins    lazy imports; fast data classes; objects of classes that settings name
    regex, http_ask, extras     RE2 expressions; HTTP requests with a deadline; the command that installs an extra
    available_memory, shortage  the available memory; threads that survive a shortage of memory

Interfaces for tests. The packages `kafkalite.broker.log` and `kafkalite.broker.coordinator` use files, time, threads
and random numbers only through the interfaces below. A simulation replaces all four. The file `tests/test_seams.py`
finds code that bypasses them.

    resource        interface                                   replaced in a simulation by
    files, reads    broker.log.disk                             disk.instead(...)
    files, writes   _native.base.file_ops                       a fault plan (file_ops.arm)
    time            clock, passed as a parameter                FakeClock
    threads         executors, passed as a parameter            a scheduler with a seed
    random numbers  randomness, for ids, names and jitter       randomness.drawn_from(...)

A simulation runs the whole broker on one thread. Therefore broker code must follow these rules:

- Code waits only in `Event.wait`. A worker without work returns, and is called again later.
- Code that holds a lock never waits.
- A set is sorted before its items reach the disk or a queue. Its order differs between processes, but the same seed
  must give the same run.
"""
