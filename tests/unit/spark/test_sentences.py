"""One sentence out of what Spark, Java and Python say around a failure."""

import pytest

from kafkalite.spark.sentences import any_sentence_of, sentence_of

TASK = """An error occurred while calling o42.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
kafkalite.avro.decoder.DecodeError: offset 3 of t-0 cannot be decoded: it is bad

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:100)
Caused by: java.io.EOFException
"""
JAVA = """An error occurred while calling o17.load.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.X.y(X.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
PYTHON = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
ValueError: not that
"""
RAISED = "[USER_RAISED_EXCEPTION] offset 1 of t-0 cannot be decoded: it is no JSON SQLSTATE: P0001\n\tat org.apache.X"
CONNECTED = "(org.apache.spark.SparkRuntimeException) [USER_RAISED_EXCEPTION] offset 1 of t-0 is bad SQLSTATE: P0001"


@pytest.mark.parametrize(
    ("text", "sentence", "is_ours"),
    [
        (TASK, "offset 3 of t-0 cannot be decoded: it is bad", True),
        (RAISED, "offset 1 of t-0 cannot be decoded: it is no JSON", True),
        (CONNECTED, "offset 1 of t-0 is bad", True),
        (JAVA, "No space left on device", False),
        (PYTHON, "ValueError: not that", False),
        ("[PARSE] Syntax error at 'x'.\n== SQL ==\nx", "[PARSE] Syntax error at 'x'.", False),
        (": org.apache.spark.sql.AnalysisException: no such table\n\tat org.X", "no such table", False),
        ("", "RuntimeError", False),
    ],
)  # fmt: skip
def test_the_sentence_of(text: str, sentence: str, is_ours: bool) -> None:
    error = RuntimeError(text)
    assert any_sentence_of(error) == sentence
    assert sentence_of(error) == (sentence if is_ours else None)
