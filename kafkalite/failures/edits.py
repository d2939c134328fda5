"""Edit dead letters before they are sent back to their group: by a JSON Patch (RFC 6902) or a user's function.

Thread rule: the module has no state; a user's function may have its own.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.failures.events import Message

MEMBERS: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": ""}
"""By operation, the member that it has in addition to `path`."""
END: Final = "-"


class NotEdited(ValueError):
    """Raised if a patch cannot be applied to a record's value."""


def parse_patch(text: str | bytes) -> list[dict[str, Any]]:
    """Parse the operations of a JSON Patch. Raises ValueError with one sentence, which quotes no value of a record."""
    try:
        operations: Any = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("the JSON Patch is not valid UTF-8") from None
    except RecursionError:
        raise ValueError("the patch is nested too deeply") from None
    if not isinstance(operations, list):
        raise ValueError(f"a JSON Patch must be a list of operations, not {type(operations).__name__}")  # noqa: TRY004  # a fault in a file, not in an argument
    for number, operation in enumerate(operations):
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or name not in MEMBERS or not {"path", MEMBERS[name]} - {""} <= operation.keys():
            raise ValueError(
                f"operation {number} of the patch is invalid or lacks a member; RFC 6902 has {', '.join(MEMBERS)}"
            )
        for member in {"path", "from"} & operation.keys():
            if not isinstance(operation[member], str) or operation[member][:1] not in {"", "/"}:
                raise ValueError(f"operation {number} of the patch: {member} is not a JSON Pointer")
    return operations


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Return a copy of the document with all operations applied. Raises NotEdited if an operation cannot be applied."""
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
    """Split a JSON Pointer (RFC 6901) into its steps."""
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def holder(root: list[Any], path: list[str]) -> tuple[Any, str]:
    """Return the object or list to which a path's last step applies, and that step. `root` contains the document."""
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
    """Convert a step to a list index or an object key. Raises NotEdited if it does not exist."""
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
    """Return whether two values are equal in JSON (RFC 6902, 4.6): 1 equals 1.0, but not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def patch_edit(operations: list[dict[str, Any]]) -> Callable[[Message], Message]:
    """Return a function that patches a record's value as JSON. The function raises NotEdited if that is impossible."""

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
            if json.dumps(changed, sort_keys=True) == json.dumps(document, sort_keys=True):
                return message  # not with `same`: 1 may be replaced by 1.0
            return message._replace(value=as_json(changed))
        except NotEdited as error:
            raise NotEdited(f"dead letter {where}: {error}") from error
        except RecursionError:
            raise NotEdited(f"dead letter {where} is nested too deeply") from None

    return edit


def as_json(document: Any) -> bytes:
    """Encode a document as compact JSON. Lone surrogates are escaped, because UTF-8 cannot encode them."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def function_edit(function: Callable[[Message], Any]) -> Callable[[Message], Message]:
    """Return a function that edits a record with a user's function, which returns a Message, bytes or None."""

    def edit(message: Message) -> Message:
        found = function(message)
        if isinstance(found, (bytes, type(None))):
            return message._replace(value=found)
        if not isinstance(found, type(message)):
            raise NotEdited(f"the edit function returned {found!r}; expected a value or a Message")
        return message._replace(key=found.key, value=found.value, headers=found.headers)

    return edit
