"""Modules loaded in advance once a broker serves."""

import importlib

import pytest

from kafkalite.broker import process


def test_what_cannot_be_loaded_ahead_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str) -> None:
        asked.append(name)
        if len(asked) == 1:
            raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(importlib, "import_module", load)
    process.warm_up()
    assert asked[-1] == "numpy"
    assert len(asked) > 1
