"""Parse whole numbers that people and programs write."""

from __future__ import annotations

from typing import Final

DIGITS_MAX: Final = 19
"""Digits of 2⁶³ - 1."""


def whole_number(text: str, low: int, high: int) -> int | None:
    """Parse an integer of ASCII digits. Return None unless it is from `low` to `high`, which is at most 2⁶³ - 1."""
    if not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > DIGITS_MAX:  # int() raises ValueError for thousands of digits
        return None
    number = int(digits)
    return number if low <= number <= high else None
