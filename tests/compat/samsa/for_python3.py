"""Makes samsa 0.3.11, which is Python 2, run on Python 3: for_python3.py DIRECTORY, where the package lies.

fissix (2to3 as a package) changes the syntax; the edits below say where text is bytes. None touches what samsa sends or
how it reads answers. Each edit must be found as often as it says, so that another version is not patched by halves.
"""

import runpy
import sys
from pathlib import Path

CRC32 = '''from zlib import crc32 as _crc32


def crc32(data):
    """Signed, as Python 2 had it and the header's struct wants it."""
    value = _crc32(data)
    return value - (value >> 31 << 32)


def buffer(data, offset=0, size=None):
    return bytes(data[offset:] if size is None else data[offset : offset + size])
'''

EDITS = (
    ("utils/structuredio.py", "def __str__(self):", "def __bytes__(self):", 1),
    (
        "utils/structuredio.py",
        "            value = str(value)\n        return super",
        "            value = bytes(value)\n        return super",
        1,
    ),
    (
        "utils/structuredio.py",
        "        value = str(value)\n        return self.pack(size",
        "        value = value.encode() if isinstance(value, str) else bytes(value)\n        return self.pack(size",
        1,
    ),
    ("utils/socket.py", "buffer(bytea)", "bytes(bytea)", 1),
    ("client.py", "from zlib import crc32\n", CRC32, 1),
    ("client.py", "str(request.wrap(4))", "request.wrap(4).getvalue()", 1),
    ("client.py", "return str(self.payload)", "return repr(self.payload)", 1),
    ("client.py", "size*1.5", "int(size * 1.5)", 1),
    ("brokers.py", "data.split(':')", "data.decode().split(':')", 1),
    ("partitions.py", "import collections\n", "import collections.abc\n", 1),
    ("partitions.py", "collections.Sequence", "collections.abc.Sequence", 1),
    ("partitions.py", "isinstance(data, str)", "isinstance(data, (str, bytes))", 1),
    ("partitions.py", ", allow_missing_node=True", "", 2),
    ("consumer/consumer.py", "path, self.topic.name, ephemeral", "path, self.topic.name.encode(), ephemeral", 1),
    ("consumer/consumer.py", "if topic == self.topic.name", "if topic.decode() == self.topic.name", 1),
    ("consumer/consumer.py", "len(all_partitions) / len(participants)", "len(all_partitions) // len(participants)", 1),
    ("consumer/partitions.py", "self.consumer.id,\n", "self.consumer.id.encode(),\n", 1),
    ("consumer/partitions.py", "str(self._current_offset))", "str(self._current_offset).encode())", 1),
)  # fmt: skip
"""File, what 2to3 leaves there, what it has to be, how often."""


def main(package: Path) -> None:
    sys.argv = ["fissix", "-w", "-n", "--no-diffs", str(package)]
    try:
        runpy.run_module("fissix", run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    for name, old, new, count in EDITS:
        path = package / name
        source = path.read_text(encoding="utf-8")
        if source.count(old) != count:
            raise SystemExit(f"{name}: {old!r} is there {source.count(old)} times, not {count}")
        path.write_text(source.replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
