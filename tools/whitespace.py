"""Remove blanks at line ends, and leave one line break at the end of each file. Exit status 1 if a file changed."""

import sys
from pathlib import Path


def cleaned(text: str) -> str:
    """Return the text without blanks at line ends, ending in one line break. An empty text stays empty."""
    lines = [line.rstrip() for line in text.split("\n")]
    body = "\n".join(lines).strip("\n")
    return f"{body}\n" if body else ""


def main(names: list[str]) -> int:
    """Rewrite the files that need it; return 1 if there was one."""
    changed = 0
    for name in names:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        if cleaned(text) != text:
            path.write_text(cleaned(text), encoding="utf-8")
            print(f"cleaned {name}")
            changed = 1
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
