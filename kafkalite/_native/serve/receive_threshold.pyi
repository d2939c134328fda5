from typing import final

@final
class LowWater:
    def __init__(self, fd: int) -> None: ...

@final
class Looks:
    def __init__(self) -> None: ...
