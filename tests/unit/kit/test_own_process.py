"""A seam of the whole process is swapped only where no broker of other tests can meet it."""

import errno
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


def test_nothing_is_swapped_in_a_process_that_tests_share() -> None:
    counted_before = file_ops.disarm()  # by an earlier test of this process
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.arm(("write",), after=0, error=errno.EIO)
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.drawn_from(random.Random(1).randbytes)
    assert file_ops.disarm() == counted_before


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


REPORTED = """
    import threading
    import pytest

    @pytest.fixture(scope="session")
    def shared():
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name="kafkalite-shared")
        thread.start()
        yield
        over.set()
        thread.join()

    RUN = []

    def test_before(shared):
        assert RUN == ["alone", "last"]

    @pytest.mark.own_process
    def test_alone():
        RUN.append("alone")

    def test_after(shared):
        pass

    @pytest.mark.own_process
    def test_last(tmp_path):
        assert [thread for thread in threading.enumerate() if thread.name == "kafkalite-shared"] == []
        RUN.append("last")
"""


def test_marked_tests_come_before_what_tests_share(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(REPORTED)
    run_with("own_process", pytester).assert_outcomes(passed=4)


SHARES = """
    import threading
    import pytest

    @pytest.fixture(scope="session", autouse=True)
    def shared():
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name="kafkalite-shared")
        thread.start()
        yield
        over.set()
        thread.join()

    @pytest.mark.own_process
    def test_own():
        pass
"""


@pytest.mark.slow
def test_one_that_would_run_beside_what_others_share_fails(pytester: pytest.Pytester) -> None:
    """Of two files, the second: the first one started what both share."""
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(test_first=SHARES, test_second="from test_first import shared, test_own")
    result = run_with("own_process", pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*a test marked own_process comes after those that share a broker*kafkalite-shared*"])
