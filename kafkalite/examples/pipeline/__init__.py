"""A data pipeline on one machine, from web servers to loaded files. Each part is a program in its own process.

    two front ends ─▶ live broker          web servers send visits
    live broker ─▶ reader                  a consumer group counts visits
    live broker ─▶ follow_up               a consumer that fails, with a retry topic and dead letters
    live broker ─▶ offline broker          `kafkalite mirror` copies visits
    offline broker ─▶ stream ─▶ Parquet    a streaming load
    offline broker ─▶ load ─▶ Parquet      a batch load with `kafkalite load`

The visits are Avro records, with schemas in `kafkalite registry`. `kafkalite audit` compares all parts except
follow_up, message by message.

    __main__.py    python -m kafkalite.examples.pipeline
    run.py         the steps of a run: start, wait, compare, stop
    processes.py   starts the parts as processes, and ends all of them
    front_end.py   a web server that logs visits
    stream.py      the streaming load
    reader.py      a group that reads visits and reports its counts
    follow_up.py   a consumer that fails, with retries and dead letters
    stages.py      samples how many visits each stage has
    report.py      the results as HTML, Markdown and JSON
    page.py        the HTML page with charts
    visits.py      the schemas of a visit, and the topic

The extra `pipeline` and Java 17 are required.
"""
