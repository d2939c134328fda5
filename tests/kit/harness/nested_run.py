"""A separate pytest process, on files that a test wrote, with plugins of this kit."""

from pathlib import Path

import pytest


def run_with(plugin: str, pytester: pytest.Pytester, *arguments: str, also: str | None = None) -> pytest.RunResult:
    """Runs what `pytester` holds with tests.kit.harness.PLUGIN, after a second one if any."""
    plugins = [f"tests.kit.harness.{name}" for name in (also, plugin) if name]
    pytester.makeconftest(f"pytest_plugins = {plugins}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
