"""Changes to the values of letters on their way back: a JSON Patch (RFC 6902), or a function of the user's.

Thread rule: functions are pure, but for what a user's function does.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.failures.events import Message

MEMBERS: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": ""}
"""What an operation has besides its path."""
END: Final = "-"


class NotEdited(ValueError):
    """A patch does not fit a record."""


def parse_patch(text: str | bytes) -> list[dict[str, Any]]:
    """The operations of a JSON Patch; ValueError, one sentence."""
    try:
        operations: Any = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("the JSON Patch is not valid UTF-8") from None
    except RecursionError:
        raise ValueError("the patch is nested too deeply") from None
    if not isinstance(operations, list):
        raise ValueError(f"a JSON Patch must be a list of operations, not {type(operations).__name__}")  # noqa: TRY004  # what a file says is no argument
    for number, operation in enumerate(operations):
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or name not in MEMBERS or not {"path", MEMBERS[name]} - {""} <= operation.keys():
            raise ValueError(
                f"operation {number} of the patch is invalid: {operation!r}; RFC 6902 has {', '.join(MEMBERS)}"
            )
        for member in {"path", "from"} & operation.keys():
            if not isinstance(operation[member], str) or operation[member][:1] not in {"", "/"}:
                raise ValueError(f"operation {number} of the patch: {operation[member]!r} is not a JSON Pointer")
    return operations


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after all operations; NotEdited where one does not fit, and then nothing has changed."""
    root = [copy.deepcopy(document)]
    for operation in operations:
        path = pointer(operation["path"])
        match operation["op"]:
            case "add":
                put(root, path, copy.deepcopy(operation["value"]))
            case "remove":
                take(root, path)
            case "replace":
                take(root, path)
                put(root, path, copy.deepcopy(operation["value"]))
            case "move":
                put(root, path, take(root, pointer(operation["from"])))
            case "copy":
                put(root, path, copy.deepcopy(look(root, pointer(operation["from"]))))
            case "test":
                if not same(look(root, path), operation["value"]):
                    raise NotEdited(
                        f"the test of {operation['path']!r} failed: it is not {json.dumps(operation['value'])}"
                    )
    if not root:
        raise NotEdited("the patch removes the whole value")
    return root[0]


def pointer(text: str) -> list[str]:
    """The steps of a JSON Pointer (RFC 6901)."""
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def holder(root: list[Any], path: list[str]) -> tuple[Any, str]:
    """What holds the end of a path, and the last step; the whole document is held by a list of its own."""
    if not path:
        return root, "0"
    found: Any = look(root, path[:-1])
    return found, path[-1]


def look(root: list[Any], path: list[str]) -> Any:
    found: Any = root[0] if root else None
    for step in path:
        found = found[place(found, step)]
    return found


def place(found: Any, step: str, *, new: bool = False) -> Any:
    """The step as an index or a name; NotEdited where it leads nowhere."""
    if isinstance(found, dict):
        if new or step in found:
            return step
    elif isinstance(found, list):
        if new and step == END:
            return len(found)
        if step.isdecimal() and str(int(step)) == step and int(step) < len(found) + new:
            return int(step)
    raise NotEdited(f"the value has no {step!r}, which a path of the patch names")


def put(root: list[Any], path: list[str], value: Any) -> None:
    found, step = holder(root, path)
    if found is root:
        root[:] = [value]
    elif isinstance(found, list):
        found.insert(place(found, step, new=True), value)
    else:
        found[place(found, step, new=True)] = value


def take(root: list[Any], path: list[str]) -> Any:
    found, step = holder(root, path)
    return found.pop(place(found, step))


def same(one: Any, other: Any) -> bool:
    """Equal as JSON has it: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True) or (
        one == other and not isinstance(one, (bool, str, list, dict)) and not isinstance(other, (bool, str, list, dict))
    )


def patch_edit(operations: list[dict[str, Any]]) -> Callable[[Message], Message]:
    """An edit that patches each value, as JSON; NotEdited for a value that is none, or that does not fit."""

    def edit(message: Message) -> Message:
        where = f"{message.topic}-{message.partition}-{message.offset}"
        try:
            document = json.loads(message.value or b"")
        except ValueError as error:
            raise NotEdited(f"dead letter {where} is not JSON: {error}") from error
        except RecursionError:
            raise NotEdited(f"dead letter {where} is nested too deeply") from None
        try:
            changed = patched(document, operations)
            if same(changed, document):
                return message
            return message._replace(value=as_json(changed))
        except NotEdited as error:
            raise NotEdited(f"dead letter {where}: {error}") from error
        except RecursionError:
            raise NotEdited(f"dead letter {where} is nested too deeply") from None

    return edit


def as_json(document: Any) -> bytes:
    """In few bytes. Half of a surrogate pair, which JSON may spell and UTF-8 may not, is spelled as it was."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def function_edit(function: Callable[[Message], Any]) -> Callable[[Message], Message]:
    """An edit by a function that gives a Message, or a value as bytes or None."""

    def edit(message: Message) -> Message:
        found = function(message)
        if isinstance(found, (bytes, type(None))):
            return message._replace(value=found)
        if not isinstance(found, type(message)):
            raise NotEdited(f"the edit function returned {found!r}; expected a value or a Message")
        return message._replace(key=found.key, value=found.value, headers=found.headers)

    return edit
