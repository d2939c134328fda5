"""Parse request bodies into fields: from a form, or from a JSON object.

    application/x-www-form-urlencoded  a=1&a=2&b=3      line ends of browsers (CR LF) become LF
    application/json                   {"a": ["1", "2"], "b": 3}

Thread rule: the thread of the request. All functions except `body_pairs` and `body_of` are pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from kafkalite.console.requests import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_MAX: Final = 2 * 1024 * 1024
FORM_FIELDS_MAX: Final = 700


def body_pairs(environ: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a request's body as (name, value), in order. Raises BadRequestError."""
    kind = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
    raw = body_of(environ)
    if kind == "application/x-www-form-urlencoded":
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
            )
        except UnicodeError:
            raise BadRequestError("the form is not UTF-8") from None
        except ValueError:
            raise BadRequestError(f"the form has more than {FORM_FIELDS_MAX} fields") from None
        return [(name, value.replace("\r\n", "\n")) for name, value in pairs]
    if kind == "application/json":
        return json_pairs(raw)
    raise BadRequestError("a change must be sent as application/x-www-form-urlencoded or application/json")


def body_of(environ: Mapping[str, Any]) -> bytes:
    """Read the body."""
    text = str(environ.get("CONTENT_LENGTH") or "0")
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > BODY_MAX:
        raise BadRequestError(f"the body must have at most {BODY_MAX} bytes")
    raw: bytes = environ["wsgi.input"].read(int(text))
    return raw


def is_whole(raw: bytes, document: Any) -> bool:
    """Return whether all strings can be encoded as UTF-8. Half of a surrogate pair, which JSON allows, cannot."""
    if b"\\u" not in raw:
        return True
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def json_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Return the (name, value) pairs of a JSON object. A value is a string, integer or boolean, or a list of these."""
    try:
        document: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not valid JSON") from None
    if not isinstance(document, dict):
        raise BadRequestError("the body is not a JSON object")
    pairs: list[tuple[str, str]] = []
    if not is_whole(raw, document):
        raise BadRequestError("a string in the body contains half of a surrogate pair")
    for name, value in document.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool):
                pairs.append((name, "1" if one else ""))
            elif isinstance(one, (str, int)):
                pairs.append((name, str(one)))
            elif one is not None:
                raise BadRequestError(f"{name[:80]} must be a string, an integer, true, false or a list of these")
    if len(pairs) > FORM_FIELDS_MAX:
        raise BadRequestError(f"the body has more than {FORM_FIELDS_MAX} fields")
    return pairs
