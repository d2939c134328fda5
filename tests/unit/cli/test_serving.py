"""What commands that serve share."""

from __future__ import annotations

import gc

import pytest

from kafkalite.cli.serving import without_collections


@pytest.fixture
def nothing_frozen():
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_what_is_imported_is_set_aside_and_cycles_are_collected_again() -> None:
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("nothing_frozen")
def test_a_start_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="planted"), without_collections():
        raise ValueError("planted")
    assert gc.isenabled()
