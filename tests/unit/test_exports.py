"""The package's one public door."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

import kafkalite

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("name", kafkalite.__all__)
def test_public_name_is_what_it_says(name: str) -> None:
    value = getattr(kafkalite, name)
    assert name in dir(kafkalite)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__doc__


def test_everything_public_is_listed_and_sorted() -> None:
    assert kafkalite.__all__ == sorted(kafkalite.__all__, key=lambda name: (name.startswith("_"), name))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brocker'"):
        kafkalite.Brocker  # noqa: B018  # looking it up is the point


def test_version_is_a_release_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", kafkalite.__version__)


def test_entry_points_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["kafkalite"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    for module in project["entry-points"]["pytest11"].values():
        importlib.import_module(module)
