"""A data pipeline on one machine, from web servers to loaded files. Each part is a program in its own process.

    front_end ×2 ─Avro, marks─▶ live broker ─▶ kafkalite mirror ─▶ offline broker ─▶ stream ─▶ Parquet
          │                          │                                   │                        │
          └──▶ kafkalite registry ◀──┘                                   └──▶ kafkalite load ──▶ Parquet
                           reader ◀──┤                                                            │
     retry topic, dead letters ◀─ follow_up, which fails for some                                 │
                              kafkalite audit: all of them, message by message ◀─────────────────┘

    __main__.py    python -m kafkalite.examples.pipeline
    run.py         the steps of a run: start, wait, compare, stop
    processes.py   parts as processes, all of which are ended
    front_end.py   a web server that logs visits
    stream.py      the streaming load
    reader.py      a group that reads visits and reports its counts
    follow_up.py   a consumer that fails, with retries and dead letters
    report.py      the results as text, JSON and a plot
    visits.py      the schemas of a visit, and the topic

Needs the extra `pipeline` and Java 17.
"""
