"""Tests for xdist's workers by file, and none of them twice.

When a worker dies, xdist itself (3.8) gives the test that it died of to another, and the files that it had ended, too,
which the other, having nothing to do, awaits for ever: a run with one such test never ends. Here neither is given to
anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class OnceEach(LoadFileScheduling):
    """Files to workers, and no test twice."""

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that the worker died of, if it did; the others are given to somebody else."""
        died_of = None
        left = self.assigned_work[node]
        for file, verdicts in [*left.items()]:
            unended = [test for test, ended in verdicts.items() if not ended]
            if unended and died_of is None:
                died_of = unended.pop(0)
                verdicts[died_of] = True
            if not unended:
                del left[file]  # a worker that was given a file without tests would wait for ever for more
        super().remove_node(node)
        return died_of
