"""The version of this release."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
"""MAJOR.MINOR.PATCH (Semantic Versioning 2.0.0)."""
