"""`kafkalite`, with one sync call left out: POWER_LEFT_OUT names it as sites.py does. For recordings
and for what a test finds.

The module that holds the call is compiled from a tree in which the call is replaced by None (`durable=True` by False);
everything else is as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from typing import TYPE_CHECKING

from tests.power.sites import without

if TYPE_CHECKING:
    from types import ModuleType


class LeavingOut(importlib.abc.MetaPathFinder):
    """Finds the one module as ever, and has it compiled without the call."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.module = site.partition(":")[0]

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> object:
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        assert spec is not None, f"{name} is not there"
        assert isinstance(spec.loader, importlib.machinery.SourceFileLoader), f"{name} is no Python module"
        spec.loader = Loader(name, spec.loader.path, self.site)
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a source file without one call."""

    def __init__(self, name: str, path: str, site: str) -> None:
        super().__init__(name, path)
        self.site = site

    def get_code(self, fullname: str) -> object:
        path = self.get_filename(fullname)
        return compile(without(self.get_data(path).decode(), self.module_name(fullname), self.site), path, "exec")

    @staticmethod
    def module_name(fullname: str) -> str:
        return fullname


def leave_out() -> None:
    """Has the module that POWER_LEFT_OUT is in, if it is set, compiled without the call. Before that is imported."""
    site = os.environ.get("POWER_LEFT_OUT", "")
    if site:
        finder = LeavingOut(site)
        assert finder.module not in sys.modules, f"{finder.module} was imported before the call could be left out"
        sys.meta_path.insert(0, finder)


def main() -> None:
    leave_out()
    from kafkalite.cli import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
