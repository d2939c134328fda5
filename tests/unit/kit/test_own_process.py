"""A seam of the whole process is swapped only where no broker of other tests can meet it."""

import errno
import os
import random
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import started
from tests.kit.harness.nested_run import run_with
from tests.kit.harness.own_process import assert_alone
from tests.simulation.disk import SimulatedDisk

TESTS_PROCESS = os.getpid()
"""The module is read in the process that the tests share."""


@pytest.fixture
def made_in() -> int:
    return os.getpid()


def test_nothing_is_swapped_in_a_process_that_tests_share() -> None:
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.arm(("write",), after=0, error=errno.EIO)
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.drawn_from(random.Random(1).randbytes)
    assert file_ops.disarm() == 0


@pytest.mark.own_process
def test_no_disk_is_swapped_beside_a_brokers_threads(tmp_path: Path) -> None:
    manager = started(tmp_path / "data")
    simulated = SimulatedDisk(FakeClock())
    with pytest.raises(AssertionError, match="kafkalite-flusher"):
        seams.disk_instead(simulated)
    assert_alone()  # they are this test's
    manager.close()
    with seams.disk_instead(simulated):
        pass
    simulated.close()


@pytest.mark.own_process
def test_a_marked_test_has_its_process_and_its_fixtures_there(made_in: int) -> None:
    assert made_in == os.getpid() != TESTS_PROCESS


REPORTED = """
    import os
    import pytest
    import time

    OPENED = []

    @pytest.fixture(scope="session")
    def shared():
        OPENED.append(os.getpid())
        yield
        print("shared is closed by", "its own" if OPENED == [os.getpid()] else "another")

    def test_before(shared):
        pass

    @pytest.mark.own_process
    def test_that_fails(shared):
        print("said before")
        assert OPENED == []

    @pytest.mark.own_process
    def test_that_is_skipped():
        pytest.skip("why")

    @pytest.mark.own_process
    def test_that_dies():
        os.kill(os.getpid(), 9)

    @pytest.mark.own_process
    def test_that_passes(tmp_path):
        assert OPENED == []  # a fork of the process as it was before test_before

    @pytest.mark.own_process
    @pytest.mark.timeout(1)
    def test_that_takes_too_long():
        os.fork()  # one that holds what it tells by
        time.sleep(600)

    @pytest.mark.own_process
    def test_after_that():
        pass

    def test_after(shared):
        assert OPENED == [os.getpid()]
"""


def test_what_a_marked_test_reports_is_told_and_what_tests_share_outlives_it(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(REPORTED)
    result = run_with("own_process", pytester, "-rs", "-s")
    result.assert_outcomes(passed=4, failed=3, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            "*said before*",
            "*assert OPENED == [[][]]*",
            "*ended without a report: wait status 9*",
            "*SKIPPED*why",
            "*Timeout*1.0s*",
            "*shared is closed by its own*",
        ]
    )
    result.stdout.no_fnmatch_line("*shared is closed by another*")


LAST_IS_MARKED = """
    import pytest

    def test_before():
        pass

    @pytest.mark.own_process
    def test_last():
        pass
"""


def test_modules_whose_last_test_is_marked_are_ended_before_the_next_one(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(test_first=LAST_IS_MARKED, test_second="def test_next(): pass")
    result = run_with("own_process", pytester)
    result.assert_outcomes(passed=3)
