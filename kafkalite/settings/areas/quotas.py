"""Define the broker's settings for quotas: the windows over which the use of quotas is measured."""

from __future__ import annotations

from kafkalite.base.dataclass import dataclass
from kafkalite.settings.rows import INT, setting


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class QuotaRows:
    """Settings of quotas."""

    __slots__ = ()

    quota_window_num: int = setting(
        INT,
        11,
        "Number of quota samples kept. A client that was idle can use the quota of all samples but one at once; "
        "then it is throttled.",
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
    controller_quota_window_num: int = setting(INT, 11, "Number of samples kept for controller_mutation_rate.", low=1)
    controller_quota_window_size_seconds: int = setting(
        INT, 1, "Length of a sample for controller_mutation_rate.", unit="s", low=1
    )
