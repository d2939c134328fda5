"""Kafkalite beside what one would otherwise run, each started from its usual package and driven by its fastest client.

    plan.py     what is measured: cases, the drivers of each system, profiles
    system.py   what a system is to a run: start, ready, process, ports, stop
    kafkas.py   kafkalite, Apache Kafka and the null broker
    queues.py   RabbitMQ, ActiveMQ, NATS JetStream, Redis Streams
    drivers/    load programs, one command line and one line of JSON for all
    run.py      sessions, interleaved repeats, rows written as they come
    report.py   medians, spread, ratios; the table in the terminal and in docs/benchmarks.md
    plots.py    the paper's figures, latency and CPU

`kafkalite bench` runs `python -m benchmarks.head_to_head`.
"""
