"""Java's hash codes, by values that any Java prints."""

import pytest

from kafkalite.classic.partitioner import DefaultPartitioner, hash_code


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
        (7, 7),
        (-7, -7),
        (1 << 40, 256),
        (True, 1231),
        (1.5, 1073217536),
    ],
)
def test_hash_code(key, expected):
    assert hash_code(key) == expected


def test_partition_is_the_hash_code_modulo_the_count():
    partitioner = DefaultPartitioner()
    assert partitioner.partition("hello", 7) == 99162322 % 7
    assert partitioner.partition(-7, 4) == 3
    assert partitioner.partition("polygenelubricants", 5) == 0


def test_key_without_a_hash_code_that_lasts():
    with pytest.raises(TypeError, match="your own partitioner"):
        hash_code(("a", 1))
