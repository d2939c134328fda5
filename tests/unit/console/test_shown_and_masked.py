"""The console's display of bytes, and the fields that masks remove from records."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.masks import MASK, Masks
from kafkalite.console.rendering import CELL_MAX, HIDDEN, SIZE_MAX, cell, shown, visible
from kafkalite.errors import StartupError
from kafkalite.wire.record.columns import Record


@pytest.mark.parametrize(
    ("raw", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        (b'{"a":1}', "json", '{\n  "a": 1\n}'),
        (b'{"a":1.10}', "text", '{"a":1.10}'),
        (b'{"a":', "text", '{"a":'),
        (b"[" * 50_000, "text", "[" * 50_000),
        (b"\xff\x00A", "hex", "00000000  ff 00 41" + " " * 39 + "  ..A"),
        ("a\u202eb\u0000\u200b".encode(), "text", "a⟦U+202E⟧b⟦U+0000⟧⟦U+200B⟧"),
    ],
)
def test_a_value_is_shown_as_what_it_is(raw: bytes | None, kind: str, text: str) -> None:
    found = shown(raw)
    assert (found.kind, found.text.rstrip()) == (kind, text.rstrip())


def test_a_large_value_is_cut_between_characters() -> None:
    raw = "é".encode() * SIZE_MAX
    found = shown(b"x" + raw)
    assert (found.kind, found.cut, found.size) == ("text", True, 2 * SIZE_MAX + 1)
    assert found.text == "x" + "é" * (SIZE_MAX // 2 - 1)


@given(st.binary(max_size=3000))
def test_no_hidden_character_comes_through(raw: bytes) -> None:
    for found in (shown(raw), shown(raw, "text"), shown(raw, "hex"), cell(raw)):
        assert HIDDEN.search(found.text) is None
    assert len(cell(raw).text) <= max(CELL_MAX, 3 * CELL_MAX // 4)


@given(st.text())
def test_visible_text_stays_as_it_is_but_for_what_is_hidden(text: str) -> None:
    assert HIDDEN.search(visible(text)) is None
    if HIDDEN.search(text) is None:
        assert visible(text) == text


def masks(tmp_path: Path, text: str) -> Masks:
    file = tmp_path / "masks.toml"
    file.write_text(text)
    return Masks.from_file(file)


MASKED_CARD = f'{{"card":{{"number":"{MASK}"}}}}'.encode()
CARD = b'{"card": {"number": "4111111111111111"}, "items": [{"pin": 1}, {"pin": 2}]}'


def test_masks_by_header_path_pattern_and_key(tmp_path: Path) -> None:
    rules = masks(
        tmp_path,
        '[[mask]]\ntopics = "pay.*"\nheaders = ["auth"]\npaths = ["$.card.number", "items[*].pin"]\nkey = true\n'
        '[[mask]]\npattern = "[0-9]{13,}"\n',
    )
    record = Record(1, 2, b"k", CARD, (("auth", b"s3cret"), ("h", b"no 4111111111111111"), ("n", None)))
    found = rules.masked("payments", record)
    assert found.key == MASK.encode()
    assert found.headers == (("auth", MASK.encode()), ("h", f"no {MASK}".encode()), ("n", None))
    assert json.loads(found.value or b"") == {"card": {"number": MASK}, "items": [{"pin": MASK}, {"pin": MASK}]}
    other = rules.masked("orders", record)
    assert (other.key, other.headers[0]) == (b"k", ("auth", b"s3cret"))
    assert other.value == CARD.replace(b"4111111111111111", MASK.encode())


@pytest.mark.parametrize("value", [b'{"a":1}', b'{"a":1.10, "b":"\\u00e9"}', b" [1]", MASKED_CARD])
def test_a_value_without_a_masked_path_keeps_its_bytes(tmp_path: Path, value: bytes) -> None:
    rules = masks(tmp_path, '[[mask]]\npaths = ["$.card.number"]\n')
    record = Record(0, 0, b"k", value)
    assert rules.masked("payments", record) == record


def test_a_name_that_occurs_twice_hides_no_masked_path(tmp_path: Path) -> None:
    rules = masks(tmp_path, '[[mask]]\npaths = ["$.card.number"]\n')
    for value in (b'{"card": {"number": "4711"}, "card": {}}', b'{"card": {"number": "4711", "number": 1}}'):
        assert rules.masked("payments", Record(0, 0, None, value)).value == MASK.encode()


def test_what_a_mask_cannot_understand_is_masked_as_a_whole(tmp_path: Path) -> None:
    paths = masks(tmp_path, '[[mask]]\npaths = ["$.card"]\n')
    for value in (b"no json", b"\0\0\0\0\1avro", b"[" * 100_000):
        assert paths.masked("__internal", Record(0, 0, None, value)).value == MASK.encode()
    assert paths.masked("t", Record(0, 0, None, None)).value is None
    pattern = masks(tmp_path, '[[mask]]\npattern = "x"\n')
    assert pattern.masked("t", Record(0, 0, b"\xff", b"ab")) == Record(0, 0, MASK.encode(), b"ab")


@pytest.mark.parametrize(
    "text",
    [
        "[mask",
        "a = 1",
        "mask = 1",
        "mask = [1]",
        "[[mask]]\nx = 1",
        "[[mask]]\nkey = 1",
        '[[mask]]\npattern = "("',
        '[[mask]]\npaths = ["$["]',
        "[[mask]]\nheaders = [1]",
    ],
)
def test_a_file_of_masks_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match=r"masks\.toml"):
        masks(tmp_path, text)
