"""Tools of other projects that `make test` installs in build/test-tools, for programs that tests start."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "test-tools"

needs_tools = pytest.mark.skipif(not FOLDER.exists(), reason="`make test` installs the tools in build/test-tools")
