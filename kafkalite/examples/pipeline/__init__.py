"""A data pipeline on one machine, from web servers to loaded files. Each part is a program in its own process.

    front_end ×2 ─▶ live broker ─▶ kafkalite mirror ─▶ offline broker ─┬─▶ stream ─────────▶ Parquet
                         ├─▶ reader                                      └─▶ kafkalite load ─▶ Parquet
                         └─▶ follow_up ─▶ retry topic, dead letters

The visits are Avro records, with schemas in `kafkalite registry`. `kafkalite audit` compares all stages, message by
message.

    __main__.py    python -m kafkalite.examples.pipeline
    run.py         the steps of a run: start, wait, compare, stop
    processes.py   starts the parts as processes, and ends all of them
    front_end.py   a web server that logs visits
    stream.py      the streaming load
    reader.py      a group that reads visits and reports its counts
    follow_up.py   a consumer that fails, with retries and dead letters
    stages.py      samples how many visits each stage has
    report.py      the results as text and JSON
    page.py        the results as an HTML page with charts
    visits.py      the schemas of a visit, and the topic

The extra `pipeline` and Java 17 are required.
"""
