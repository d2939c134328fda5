"""Takes blanks from the ends of lines and leaves one line break at the end of a file; status 1 when it had to."""

import sys
from pathlib import Path


def cleaned(text: str) -> str:
    """The text without blanks at line ends, ending in one line break (nothing stays nothing)."""
    lines = [line.rstrip() for line in text.split("\n")]
    body = "\n".join(lines).strip("\n")
    return f"{body}\n" if body else ""


def main(names: list[str]) -> int:
    """Rewrites what needs it."""
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
