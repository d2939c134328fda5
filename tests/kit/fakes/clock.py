"""A clock that only a test advances."""


class FakeClock:
    """Both clocks of `kafkalite.base.clock.Clock`; `advance` moves both, `jump` the wall clock alone."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._time_ms = time_ms
        self._monotonic = monotonic

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes."""
        assert seconds >= 0, "time does not run backwards; use jump for a wall clock that is set"
        self._monotonic += seconds
        self._time_ms += round(seconds * 1000)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forwards or back."""
        self._time_ms += round(seconds * 1000)
