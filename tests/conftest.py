"""Setup of every test: the native build must exist, and the report names it."""

import gc
import importlib
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from kafkalite.base.logging import forget_repeats
from tests.kit.harness import leftovers, sanitiser
from tests.kit.harness.watchdog import Watchdog

# A slow machine is no failing example.
settings.register_profile("kafkalite", deadline=None)
settings.register_profile("sample", deadline=None, max_examples=20)  # of the 100, in `make test`
settings.load_profile("kafkalite")

pytest_plugins = [
    "kafkalite.testing",
    "pytester",
    "tests.kit.harness.own_process",
    "tests.kit.harness.distribution",
    "tests.kit.harness.fixtures",
]

NATIVE = Path(__file__).resolve().parent.parent / "ext" / "kafkalite" / "_native"


def pytest_configure(config: pytest.Config) -> None:
    """A run in a shell's background ignores Ctrl-C, and programs it starts would inherit that; some tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sanitiser.install()
    config.pluginmanager.register(Watchdog(float(config.getini("timeout"))))
    if _began_the_run(config):
        leftovers.adopt()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if _began_the_run(config):
        for command in leftovers.end():
            print(f"still ran when the tests had ended: {command}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what was collected, millions of objects, out of the garbage collections of the tests.

    Full collections run only in tests that ask for one: a socket that a client library left open fails the test during
    which it is collected, whichever that is.
    """
    gc.collect()
    gc.freeze()
    gc.unfreeze = _unfreeze_and_note
    gc.set_threshold(700, 10, 10_000)


_unfreeze = gc.unfreeze
_thawed = False


def _unfreeze_and_note() -> None:
    global _thawed
    _thawed = True
    _unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Set aside again what `kafkalite start` within an earlier test gave back to the garbage collector.

    A collection that visits all modules takes a second, and some tests ask for one dozens of times. To ask the
    collector how much it has set aside takes as long as a short test.
    """
    global _thawed
    if _thawed:
        gc.freeze()
        _thawed = False


def _began_the_run(config: pytest.Config) -> bool:
    """Whether this is the run's first process, not a worker of xdist."""
    return not hasattr(config, "workerinput")


@pytest.fixture(autouse=True)
def no_line_held_back() -> None:
    """What an earlier test logged a moment ago does not hold back the lines of this one."""
    forget_repeats()


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that is called within a test sends the log to that test's stderr, which is closed after it."""
    logger = logging.getLogger("kafkalite")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = handlers, level, propagate


def pytest_report_header() -> str:
    """Fails the run when an extension is missing, rather than letting every test of it fail on import."""
    names = sorted(".".join(path.relative_to(NATIVE).with_suffix("").parts) for path in NATIVE.rglob("*.pyx"))
    missing = []
    for name in names:
        try:
            importlib.import_module(f"kafkalite._native.{name}")
        except ImportError as error:
            missing.append(f"{name} ({error})")
    if missing:
        raise pytest.UsageError(f"not built, run `python setup.py build_ext --inplace` first: {', '.join(missing)}")
    crc32c = importlib.import_module("kafkalite._native.base.crc32c")
    debug = importlib.import_module("kafkalite._native.base.debug")
    build = "debug" if debug.ENABLED else "release"
    return f"kafkalite: {len(names)} native modules, CRC-32C by {crc32c.backend}; {build} build"
