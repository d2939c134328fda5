"""The stored formats by the name that the topic setting `message.format` gives them.

A format is a native object (`_native.record_format`): it validates an append, parses one stored item for walks and
look-ups, and places offsets. The 0.7 format joins here; nothing else in this package knows one format from another.
"""

from kafkalite._native.record_format import RecordFormat, v2

FORMATS: dict[str, RecordFormat] = {v2.name: v2}


def format_named(name: str) -> RecordFormat:
    """The format of that name; KeyError for one this release does not have."""
    return FORMATS[name]
