from collections.abc import Callable
from typing import final

from kafkalite._native.serve.topic_table import Topic

@final
class AccessControl:
    @property
    def epoch(self) -> int: ...
    def __init__(
        self,
        *,
        allows_topic: Callable[[str, str, int, str], bool],
        allows_transactional_id: Callable[[str, str, str], bool],
        allows_following: Callable[[str, str], bool],
    ) -> None: ...
    def rules_changed(self) -> None: ...

@final
class AccessView:
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def capacity(self) -> int: ...
    def __init__(self, control: AccessControl, principal: str, host: str) -> None: ...
    def may(self, operation: int, topic: Topic, now: float) -> bool: ...
