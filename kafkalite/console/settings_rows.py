"""Convert the settings of a topic or broker to table rows, with the broker's documentation. Functions are pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalite.client.admin.admin import ConfigEntry


def settings_rows(entries: Iterable[ConfigEntry]) -> list[dict[str, Any]]:
    """Return a row for each setting, overridden settings first. Secrets have no value."""
    rows = [
        {
            "name": row.name,
            "value": None if row.sensitive else row.value,
            "source": row.source,
            "own": row.source != "default",
            "secret": row.sensitive,
            "doc": (row.documentation or "").replace("`", ""),
        }
        for row in entries
    ]
    return sorted(rows, key=lambda row: (not row["own"], row["source"] != "topic", str(row["name"])))
