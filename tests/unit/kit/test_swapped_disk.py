"""No simulated disk replaces the real one while a broker's threads run."""

from pathlib import Path

import pytest

from tests.kit.fakes.clock import FakeClock
from tests.kit.harness import seams
from tests.kit.harness.log_harness import started
from tests.kit.harness.own_process import assert_alone
from tests.simulation.disk import SimulatedDisk

pytestmark = pytest.mark.own_process


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
