"""The key map: its hash is SipHash-2-4 with 128 bits, it keeps the largest offset, it never takes more than it may."""

import random

import pytest

from kafkalite._native.log.key_map import KeyMap

SECRET = bytes(range(16))
MASK = (1 << 64) - 1


def rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)


def siphash_128(secret: bytes, data: bytes) -> bytes:
    """SipHash-2-4-128 as its authors describe it."""
    low, high = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(v, 4)
    second = v[0] ^ v[1] ^ v[2] ^ v[3]
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def test_hash_gives_the_published_vectors() -> None:
    keys = KeyMap(100, secret=SECRET)
    assert keys.hash(b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert keys.hash(b"\0").hex() == "da87c1d86b99af44347659119b22fc45"


@pytest.mark.parametrize("size", [*range(40), 255, 256, 1000])
def test_hash_equals_plain_python(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert KeyMap(100, secret=SECRET).hash(data) == siphash_128(SECRET, data)


def test_two_maps_have_two_secrets() -> None:
    assert KeyMap(100).hash(b"key") != KeyMap(100).hash(b"key")


def test_map_equals_a_dict_up_to_its_limit() -> None:
    chance = random.Random(5)
    keys = KeyMap(24 * 1000, 0.9)
    assert keys.count_max == 900
    model: dict[bytes, int] = {}
    refused = 0
    for _ in range(20_000):
        key = b"%d" % chance.randrange(1200)
        offset = chance.randrange(1 << 40)
        if keys.put(key, offset):
            model[key] = max(offset, model.get(key, -1))
        else:
            assert key not in model
            assert len(model) == 900
            refused += 1
    assert refused
    assert len(keys) == len(model)
    for number in range(1300):
        assert keys.get(b"%d" % number) == model.get(b"%d" % number, -1)


@pytest.mark.parametrize(
    ("size_max", "wanted", "size"),
    [(24 * 100_000, 100, 24 * 200), (24 * 100_000, 10**9, 24 * 100_000), (48, 5, 48), (24 * 1000, 0, 24 * 64)],
)
def test_memory_is_what_is_needed_and_never_more_than_allowed(size_max: int, wanted: int, size: int) -> None:
    keys = KeyMap(size_max, 0.9, wanted)
    assert keys.size == size <= size_max
    assert 1 <= keys.count_max < size // 24


def test_smallest_map_takes_one_key() -> None:
    keys = KeyMap(48, 0.9)
    assert keys.put(b"a", 1)
    assert not keys.put(b"b", 2)
    assert keys.put(b"a", 3)
    assert (keys.get(b"a"), keys.get(b"b")) == (3, -1)


@pytest.mark.parametrize("arguments", [(47,), (1000, 0.0), (1000, 1.0)])
def test_impossible_maps_are_refused(arguments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"load_factor|two slots"):
        KeyMap(*arguments)  # type: ignore[arg-type]
