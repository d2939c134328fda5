from typing import final

from kafkalite._native.serve.memory import MemoryCeiling

@final
class FrameBuffer:
    def __init__(self, memory: MemoryCeiling, client_host: str) -> None: ...
