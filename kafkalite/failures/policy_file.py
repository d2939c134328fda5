"""Load a policy for failed records from a TOML file.

    group = "billing"
    topics = ["orders"]
    fatal = ["ValueError", "shop.errors:BadOrder"]
    order = "none"

    [strategy]
    kind = "RetryTopics"        # Ignore, RetryForever, RetryHere
    delays = ["10 s", "1 min"]

    [limit]
    ratio = 0.05

    [dead_topics]
    LookupError = "orders.unknown"

Built-in exception classes are written by name, other classes as `module:Class`. Unknown keys are an error.

Thread rule: functions are pure, except for reading the file and importing classes.
"""

from __future__ import annotations

import builtins
import importlib
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from kafkalite.errors import StartupError
from kafkalite.failures.arguments import refuse_unknown
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import (
    Exponential,
    Ignore,
    Limit,
    Loss,
    RetryForever,
    RetryHere,
    RetryTopics,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalite.failures.retry_strategies import Strategy

KINDS: Final = {kind.__name__: kind for kind in (Ignore, RetryForever, RetryHere, RetryTopics)}
SPELLED: Final = {"delays": "delays_after"}
"""Names in the file that differ from the class's field."""


def load_policy(path: Path) -> Policy:
    """Load the policy in a file. Raises StartupError with one sentence."""
    try:
        return policy_of(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise StartupError(f"{path}: {error}") from error


def policy_of(document: dict[str, Any]) -> Policy:
    """Build the policy from a parsed document. Raises ValueError or TypeError if it is invalid."""
    given = dict(document)
    known = {field.name for field in fields(Policy)}
    refuse_unknown("the policy", given, known)
    for name in ("group", "topics", "strategy"):
        if name not in given:
            raise ValueError(f"key {name} is missing in the policy")
    given["strategy"] = strategy_of(given["strategy"])
    for name in ("fatal", "outage"):
        if isinstance(given.get(name), list):  # Policy refuses anything else
            given[name] = [class_of(text) for text in given[name]]
    if "rules" in given:
        rules = table("rules", given["rules"])
        given["rules"] = {class_of(text): strategy_of(rule) for text, rule in rules.items()}
    if isinstance(given.get("dead_topics"), dict):
        given["dead_topics"] = {class_of(text): topic for text, topic in given["dead_topics"].items()}
    if "limit" in given:
        given["limit"] = Limit(**table("limit", given["limit"]))
    for name in ("decode", "scrub"):
        if name in given:
            given[name] = named(given[name])
    return Policy(**given)


def strategy_of(document: dict[str, Any] | object) -> Strategy:
    """Build a strategy from a table with `kind`. Nested tables are strategies, backoffs or alarms."""
    if not isinstance(document, dict) or document.get("kind") not in KINDS:
        raise ValueError(f"a strategy must be a table with kind {', '.join(KINDS)}, not {document!r}")
    given: dict[str, Any] = {SPELLED.get(name, name): value for name, value in document.items() if name != "kind"}
    if isinstance(given.get("then"), dict):
        given["then"] = strategy_of(given["then"])
    if isinstance(given.get("backoff"), dict):
        given["backoff"] = Exponential(**given["backoff"])
    if "alarm" in given:
        given["alarm"] = Loss(**table("alarm", given["alarm"]))
    for name, spelled in SPELLED.items():
        if KINDS[document["kind"]] is RetryTopics and spelled not in given:
            raise ValueError(f"key {name} is missing in the strategy RetryTopics")
    made: Strategy = KINDS[document["kind"]](**given)
    return made


def table(name: str, value: object) -> dict[str, Any]:
    """Return the value if it is a table; raise ValueError if it is not."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a table, not {value!r}")  # noqa: TRY004  # a fault in a file, not in an argument
    return value


def class_of(text: object) -> type[BaseException]:
    """Return an exception class by its name. Raises ValueError."""
    spelled = str(text)
    found = named(spelled) if ":" in spelled else getattr(builtins, spelled, None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ValueError(  # noqa: TRY004  # a fault in a file, not in an argument
            f"{text!r} is not an exception class; write a built-in one such as ValueError, or module:Class"
        )
    return found


def named(text: object) -> Any:
    """Import the object `module:name`. Raises ValueError if the module or the object does not exist."""
    module, separator, name = str(text).partition(":")
    if not separator:
        raise ValueError(f"{text!r} is not MODULE:NAME")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text}: {error}") from error
    return found
