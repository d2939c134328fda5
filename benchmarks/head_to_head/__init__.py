"""Compare kafkalite with the brokers that one would otherwise run, each from its usual package with its fastest client.

    plan.py     what is measured: cases, the drivers of each system, profiles
    system.py   the interface of a system: start, ready, processes, ports, stop
    kafkas.py   kafkalite, Apache Kafka and the null broker
    queues.py   RabbitMQ, ActiveMQ, NATS JetStream, Redis Streams
    drivers/    load programs, with the same command line and one line of JSON
    run.py      sessions, interleaved repeats, rows written as they come
    report.py   medians, spread, ratios; the table in the terminal and in docs/benchmarks.md
    plots.py    the paper's figures, latency and CPU

`kafkalite bench` runs `python -m benchmarks.head_to_head`.
"""
