"""pytest in a process of its own, on files that a test wrote, with a plugin of this kit."""

from pathlib import Path

import pytest


def run_with(plugin: str, pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs what `pytester` holds with tests.kit.harness.PLUGIN."""
    pytester.makeconftest(f'pytest_plugins = ["tests.kit.harness.{plugin}"]')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
