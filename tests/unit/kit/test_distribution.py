"""How tests are given to workers: by file, marked ones first; what kills its worker ends the run and is named."""

import pytest

from tests.kit.harness.nested_run import run_with

SPREAD = ("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")

SAYS = """
    import os
    import time
    import pytest

    @pytest.fixture(scope="module")
    def begun():
        with open(os.environ["PYTEST_XDIST_WORKER"] + ".modules", "a") as modules:
            modules.write(__name__ + "\\n")

    @pytest.mark.parametrize("number", range(10))
    def test_many(begun, number):
        time.sleep(0.001)

    def test_two(begun):
        assert __name__ != "test_b"
"""
"""Each worker notes which modules' fixtures it set up."""

OWN = (
    SAYS
    + """
    pytestmark = pytest.mark.own_process
"""
)

DIES = """
    import os

    def test_before():
        pass

    def test_that_dies():
        os._exit(3)

    def test_after():
        pass
"""


@pytest.fixture
def marked(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    return pytester


def test_files_are_kept_together_and_marked_tests_come_first(marked: pytest.Pytester) -> None:
    files = {f"test_{name}": SAYS for name in "abcd"} | {f"test_own_{name}": OWN for name in "abcd"}
    marked.makepyfile(**files)
    result = run_with("distribution", marked, "-n", "2", *SPREAD, also="own_process")
    result.assert_outcomes(passed=8 * 11 - 1, failed=1)
    by_worker = [path.read_text().split() for path in marked.path.glob("*.modules")]
    assert sorted(name for written in by_worker for name in written) == sorted(files)
    for written in by_worker:
        assert written == sorted(written, key=lambda name: "own" not in name)
    told = [line for line in result.stdout.lines if line.startswith("failed in call: test_b.py::test_two")]
    assert len(told) == 1


@pytest.mark.slow
def test_what_kills_its_worker_ends_the_run_and_is_named(marked: pytest.Pytester) -> None:
    marked.makepyfile(test_first="def test_one(): pass", test_last=DIES)
    result = run_with("distribution", marked, "-n", "2", *SPREAD, also="own_process")
    assert result.ret != 0
    told = [line for line in result.stdout.lines if line.startswith("failed in")]
    assert any("::test_that_dies" in line and ": worker 'gw" in line for line in told), told


INTERRUPTED = """
    import _thread, time

    def test_that_hangs():
        _thread.interrupt_main()
        time.sleep(60)
"""


@pytest.mark.slow
def test_what_ran_when_a_run_was_broken_off_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_first="def test_one(): pass", test_last=INTERRUPTED)
    result = run_with("distribution", pytester, also="own_process")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    told = [line for line in result.stdout.lines if line.startswith("was running")]
    assert told == ["was running: test_last.py::test_that_hangs"]
