"""Writes the copyright file of the Debian package, in Debian's machine-readable format, from what is installed in it.

Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
"""

from __future__ import annotations

import csv
import re
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

from tools.release.dependencies import PROJECT_LICENCE, Dependency, described, is_about_licences

LIBRARY: Final = "opt/kafkalite/lib"
COMMON: Final = Path("/usr/share/common-licenses")
HEADER: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kafkalite
Comment: The native modules contain support code of Cython (Apache-2.0) and code of
 the headers of numpy (BSD-3-Clause).

Files: *
Copyright: the kafkalite authors
License: {licence}
{text}
"""
HOLDER: Final = re.compile(r"^\W*Copyright:?\s+(.*\b(?:19|20)\d\d\b.*?)[\s.]*$", re.MULTILINE | re.IGNORECASE)
OF_THE_TEXT: Final = re.compile(r"^.*Free Software Foundation.*\n(?:.*\n)?\W*Everyone is permitted.*$", re.MULTILINE)
"""The holder of a licence's text, which is not that of the licensed library."""

TERMS: Final = re.compile(r"^\s*TERMS AND CONDITIONS\b.*(?=END OF TERMS AND CONDITIONS)", re.MULTILINE | re.DOTALL)
"""The part of a licence that is the same for all who use it. An appendix can name the holder."""


class Part(NamedTuple):
    """A distribution of Python as it is installed. `paths`: what it has at the top of the library."""

    about: Dependency
    author: str
    paths: list[str]


def parts(library: Path) -> list[Part]:
    """Return the distributions in a directory of pip's, whose RECORD files are still there."""
    found = []
    for folder in sorted(library.glob("*.dist-info")):
        about = Parser().parsestr((folder / "METADATA").read_text(encoding="utf-8"))
        with (folder / "RECORD").open(encoding="utf-8", newline="") as record:
            names = [row[0] for row in csv.reader(record)]
        files = {name: (library / name).read_bytes() for name in filter(is_about_licences, names)}
        author = next((about[key] for key in ("Author", "Author-email", "Maintainer-email") if about[key]), "")
        tops = {top + ("/*" if below else "") for top, below, _ in (name.partition("/") for name in names)}
        tops -= {"../*", "bin/*", "__pycache__/*"}
        found.append(Part(described(about, files, digest=""), author, sorted(tops)))
    return found


def copyright_file(found: list[Part], licence: str) -> str:
    """Return the text of the file. `licence`: the text of kafkalite's own licence."""
    files = (path for path in sorted(COMMON.glob("*")) if path.is_file() and not path.is_symlink())  # GPL: a link
    common = {path: path.read_text(encoding="utf-8") for path in files}
    paragraphs = [HEADER.format(licence=PROJECT_LICENCE, text=_field(_text(licence, common)))]
    paragraphs += [_paragraph(part, common) for part in found if part.about.name != "kafkalite"]
    return "\n".join(paragraphs)


def _paragraph(part: Part, common: dict[Path, str]) -> str:
    texts = {name: content.decode(errors="replace") for name, content in sorted(part.about.texts.items())}
    named = [HOLDER.findall(OF_THE_TEXT.sub("", text)) for text in texts.values()]
    holders = list(dict.fromkeys(each for found in named for each in found))
    if not all(named) or not named:  # some text leaves it to the metadata
        holders.insert(0, part.author)
    files = " ".join(f"{LIBRARY}/{path}" for path in part.paths)
    lines = [f"Files: {files}", "Copyright: " + "\n ".join(holders)]
    if part.about.bundled:
        bundled = (f"{' '.join(each[:2]).strip()} ({each.licence})" for each in part.about.bundled)
        lines.append("Comment: contains\n " + ",\n ".join(bundled))
    lines.append(f"License: {_short_name(part.about)}")
    for name, text in texts.items():
        lines.append(_field(f"{name}:\n\n" + _text(text, common).strip("\n")))
    return "\n".join(lines) + "\n"


def _short_name(about: Dependency) -> str:
    """Return a licence as the format spells it: `and` and `or` between names without spaces."""
    if about.is_expression:
        return re.sub(r"\b(AND|OR|WITH)\b", lambda word: word[0].lower(), about.licence)
    return about.licence.replace(", ", " and ") if "," in about.licence else about.licence.replace(" ", "-")


def _text(text: str, common: dict[Path, str]) -> str:
    """Return a licence's text. Licences that Debian has (`common`), or their terms, become references."""
    for path, known in common.items():
        if _words(known) == _words(text):
            return f"On Debian systems, this text is in {path}."
        text = _pattern(known).sub(f"[On Debian systems, this text is in {path}.]", text)
    for path, known in common.items():
        if terms := TERMS.search(known):
            pattern = rf"{_pattern(terms[0]).pattern}(\s+END\s+OF\s+TERMS\s+AND\s+CONDITIONS)?"
            text = re.sub(pattern, f"[On Debian systems, these terms and conditions are in {path}.]", text)
    return text


def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that finds a text with any spaces and line ends."""
    return re.compile(r"\s+".join(map(re.escape, text.split())))


def _words(text: str) -> str:
    return " ".join(text.split())


def _field(text: str) -> str:
    """Indent the lines of a field's text, as control files of Debian do."""
    return "\n".join(f" {line.rstrip()}" if line.strip() else " ." for line in text.strip("\n").splitlines())
