"""Format the subject of a certificate as text, in the form that Kafka's principal mapping rules expect.

This is the form of Java's X500Principal.getName() (RFC 2253). OpenSSL and Python's libraries use other forms, so this
module decodes the DER itself. Invalid DER raises ValueError.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
SIZE_MAX: Final = 65536
"""Bytes; a longer name is refused."""

_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_VERSION: Final = 0xA0
"""The tag of a certificate's first field, which is optional."""
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags: UTF-8, printable, teletex, IA5, general and BMP strings."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def java_text(der: bytes) -> str:
    """Format a DER-encoded X.501 name as text. ValueError if it is invalid.

    The most specific part comes first, and parts are separated by commas without spaces. Attribute types in KEYWORDS
    have names. All others are written as their OID and the value's DER in hexadecimal.
    """
    if len(der) > SIZE_MAX:
        raise ValueError(f"a distinguished name of {len(der)} bytes is too long")
    tag, content, behind = _value(der, 0)
    if tag != _SEQUENCE or behind != len(der):
        raise ValueError("the distinguished name is not valid DER")
    parts = []
    for set_tag, members, _ in _values(content):
        if set_tag != _SET:
            raise ValueError("the distinguished name is not valid DER")
        parts.append("+".join(_attribute(item) for _, item, _ in _values(members)))
    return ",".join(reversed(parts))


def subject_of(certificate: bytes) -> bytes:
    """Return the DER-encoded subject of a DER-encoded certificate (RFC 5280, 4.1). ValueError if it is invalid."""
    _, signed, _ = _value(certificate, 0)
    _, fields, _ = _value(signed, 0)
    rows = list(_values(fields))
    at = 5 if rows and rows[0][0] == _VERSION else 4  # after serial number, algorithm, issuer and validity
    if len(rows) <= at:
        raise ValueError("the certificate is not valid DER")
    return rows[at][2]


def alternative_names(der: bytes) -> frozenset[bytes]:
    """Return the names in a DER-encoded subjectAltName, each as DER. Empty input has no names.

    ValueError if the input is invalid.
    """
    if not der:
        return frozenset()
    tag, content, _ = _value(der, 0)
    if tag != _SEQUENCE:
        raise ValueError("the subjectAltName is not valid DER")
    return frozenset(whole for _, _, whole in _values(content))


def _attribute(content: bytes) -> str:
    found = list(_values(content))
    if len(found) != 2 or found[0][0] != _OID:
        raise ValueError("an attribute of the distinguished name lacks its type or value")
    (_, oid, _), (tag, value, whole) = found
    number = _oid_text(oid)
    keyword = KEYWORDS.get(number)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    core = text.strip(" ")
    if not core:
        return "\\ " * len(text)
    head = len(text) - len(text.lstrip(" "))
    escaped = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in core)
    return "\\ " * head + escaped + "\\ " * (len(text) - len(core) - head)


def _oid_text(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if number >> 256:
            raise ValueError("an object identifier is too long")
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("an object identifier is not valid DER")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _values(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (tag, content, whole DER) of each of several consecutive DER values."""
    at = 0
    while at < len(content):
        tag, inner, behind = _value(content, at)
        yield tag, inner, content[at:behind]
        at = behind


def _value(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return (tag, content, end position) of the DER value at position `at`."""
    if at + 2 > len(data):
        raise ValueError("truncated DER")
    tag, size, start = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 0 < count <= 4 or start + count > len(data):
            raise ValueError("DER with an invalid length")
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + size > len(data):
        raise ValueError("truncated DER")
    return tag, data[start : start + size], start + size
