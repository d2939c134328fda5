"""A seam of the whole process is swapped only where no broker of other tests can meet it."""

import errno
import random

import pytest

from kafkalite._native.base import file_ops
from tests.kit.harness import seams
from tests.kit.harness.nested_run import run_with


def test_nothing_is_swapped_in_a_process_that_tests_share() -> None:
    counted_before = file_ops.disarm()  # by an earlier test of this process
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.arm(("write",), after=0, error=errno.EIO)
    with pytest.raises(AssertionError, match="own_process is missing"):
        seams.drawn_from(random.Random(1).randbytes)
    assert file_ops.disarm() == counted_before


SHARED = """
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

    def test_shared(shared):
        pass
"""

ALONE = """
    import threading
    import pytest

    pytestmark = pytest.mark.own_process

    def test_alone():
        assert [thread for thread in threading.enumerate() if thread.name == "kafkalite-shared"] == []
"""


def test_marked_files_come_before_what_tests_share(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(test_first=SHARED, test_last=ALONE)
    run_with("own_process", pytester).assert_outcomes(passed=2)


def test_a_file_of_which_only_a_part_is_marked_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["own_process: as here"]')
    pytester.makepyfile(
        SHARED
        + """
    @pytest.mark.own_process
    def test_alone():
        pass
    """
    )
    result = run_with("own_process", pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*::test_shared is not marked own_process as others of its file are*"])


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
