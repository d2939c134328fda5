"""Estimate how fast a sampled figure grows, with an interval that allows for correlated samples.

A least-squares line is fitted to the medians of one-minute bins. Residuals of neighboring minutes are correlated. So
the standard error uses the effective number of bins, n (1 - r) / (1 + r), where r is the residuals' lag-1 correlation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN_S: Final = 60.0
BINS_MIN: Final = 5
"""Fewer minutes give no slope."""
NORMAL_95: Final = 1.96


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per hour and the half width of its 95 % interval, in the figure's unit."""

    per_hour: float
    half_width: float

    @property
    def is_flat(self) -> bool:
        """Whether the interval includes zero."""
        return abs(self.per_hour) <= self.half_width


def slope(times_s: Sequence[float], values: Sequence[float]) -> Slope | None:
    """Return the growth of values over times in seconds, or None for less than `BINS_MIN` minutes of samples."""
    times, found = np.asarray(times_s, float), np.asarray(values, float)
    bins = np.floor(times / BIN_S)
    minutes = np.unique(bins)
    if len(minutes) < BINS_MIN:
        return None
    medians = np.array([np.median(found[bins == minute]) for minute in minutes])
    if not np.ptp(medians):
        return Slope(0.0, 0.0)
    hours = (minutes - minutes.mean()) / 60
    spread = float((hours**2).sum())
    rate = float((hours * medians).sum() / spread)
    residuals = medians - medians.mean() - rate * hours
    variance = float((residuals**2).sum()) / (len(minutes) - 2)
    likeness = float((residuals[1:] * residuals[:-1]).sum() / max((residuals**2).sum(), 1e-300))
    likeness = min(max(likeness, 0.0), 0.95)
    return Slope(rate, NORMAL_95 * (variance / spread * (1 + likeness) / (1 - likeness)) ** 0.5)
