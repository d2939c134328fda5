"""Public exports: the package's, and those of its subpackages with a public API."""

import ast
import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

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


ROOMS = ("audit", "avro", "broker", "classic", "client", "mirror")
DOORS = [kafkalite, *(importlib.import_module(f"kafkalite.{room}") for room in ROOMS)]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_names_that_are_imported_when_used_lead_where_a_type_checker_looks(door: ModuleType) -> None:
    checked = {
        alias.name: node.module
        for block in ast.parse(Path(door.__file__ or "").read_text(encoding="utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert checked == door._WHERE
    assert set(door.__all__) - {"__version__"} == set(door._WHERE)
    assert list(door._WHERE) == sorted(door._WHERE)
    for name, module in door._WHERE.items():
        assert getattr(door, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_name_that_no_door_has_is_refused(door: ModuleType) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = door.nothing


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
