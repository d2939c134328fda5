"""Rows of the broker's settings table: over which time it is counted what clients do."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class QuotaRows:
    """Quotas."""

    __slots__ = ()

    quota_window_num: int = setting(
        INT,
        11,
        "A client who was idle may do at once what his quotas allow in all of these samples but one; then he is held to"
        " them.",
        low=1,
    )
    quota_window_size_seconds: int = setting(
        INT,
        1,
        "Length of a quota sample; a new client starts with the allowance of one sample. It is also the"
        " longest throttle for request_percentage and for new connections.",
        unit="s",
        low=1,
    )
    controller_quota_window_num: int = setting(
        INT, 11, "The samples for which controller_mutation_rate allows partitions at once.", low=1
    )
    controller_quota_window_size_seconds: int = setting(INT, 1, "The length of such a sample.", unit="s", low=1)
