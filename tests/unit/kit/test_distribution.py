"""How tests are given to workers: a test that kills its worker is run once, and told at once."""

import pytest

from tests.kit.harness.nested_run import run_with

FIRST = """
    def test_one():
        pass

    def test_two():
        assert 1 == 2

    def test_three():
        pass

    def test_four():
        pass
"""

DIES = """
    import os

    def test_before():
        pass

    def test_that_dies():
        with open("deaths", "a") as deaths:
            deaths.write("x")
        os._exit(3)

    def test_after():
        pass
"""

DIES_ALONE = DIES.replace("test_before", "before").replace("test_after", "after")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("last", [DIES, DIES_ALONE], ids=["amid-others", "alone"])
def test_what_kills_its_worker_is_not_run_again(pytester: pytest.Pytester, last: str, workers: int) -> None:
    """Where there is one, it has ended files before."""
    pytester.makepyfile(test_first=FIRST, test_last=last)
    result = run_with("distribution", pytester, "-n", str(workers), "--dist", "loadfile")
    result.assert_outcomes(passed=3 + 2 * (last == DIES), failed=2)
    assert (pytester.path / "deaths").read_text() == "x"
    said = result.stdout.lines
    assert len([line for line in said if "failed in call: test_first.py::test_two: " in line]) == 1
    assert len([line for line in said if line.startswith("failed in") and "::test_that_dies: worker 'gw" in line]) == 1


INTERRUPTED = """
    import _thread, time

    def test_that_hangs():
        _thread.interrupt_main()
        time.sleep(60)
"""


def test_what_ran_when_a_run_was_broken_off_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_first="def test_one(): pass", test_last=INTERRUPTED)
    result = run_with("distribution", pytester)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    told = [line for line in result.stdout.lines if line.startswith("was running")]
    assert told == ["was running: test_last.py::test_that_hangs"]
