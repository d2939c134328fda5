"""0.7's message sets: the native code against the description's bytes and a plain oracle, on good and bad input."""

import gc
import gzip
import random
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite._native.classic import message_set as native
from kafkalite._native.classic.message_set import Message, MessageSetError
from kafkalite._native.classic.stream import PairIterator
from kafkalite.classic import wire
from kafkalite.classic.errors import ClassicError, InvalidMessage, InvalidMessageSize
from kafkalite.classic.messages import MessageAndOffset, MessageIterator, MessageSet, encode_message_set, valid_size
from kafkalite.wire.record.message_set import check_deep, messages, snappy_stream, wrap
from tests.kit.oracles.classic_oracle import (
    HELLO_0,
    HELLO_1,
    OracleError,
    OracleMessage,
    encode_set,
    gzip_wrapper,
    read_deep,
    read_entries,
)

plain = st.builds(OracleMessage, st.binary(max_size=300), st.sampled_from([0, 1]))
flat_sets = st.lists(plain, max_size=12)
any_message = st.one_of(plain, st.builds(gzip_wrapper, flat_sets))
deep_sets = st.lists(any_message, max_size=6)


def test_the_descriptions_vectors() -> None:
    assert native.encode([b"hello"], magic=0) == HELLO_0
    assert native.encode([b"hello"]) == HELLO_1
    assert encode_message_set([Message(b"hello")]) == HELLO_1
    assert [m.checksum for m in MessageIterator(HELLO_0)] == [0x3610A686]


def test_a_log_of_kafka_0_6_is_read() -> None:
    data = encode_set([OracleMessage(b"x" * 100, magic=0)] * 100)
    assert data[:9] == bytes.fromhex("00000069005e0e5d8f")
    assert native.check(data) == (10_900, 100, 100, 0, 0)
    assert [m.payload for m in MessageIterator(data)] == [b"x" * 100] * 100


@given(flat_sets)
def test_encoding_equals_the_oracles(items: list[OracleMessage]) -> None:
    ours = native.encode([Message(item.payload, magic=item.magic) for item in items])
    assert ours == encode_set(items)


@given(flat_sets, st.text(max_size=20), st.integers(-1, 2**31 - 1))
def test_produce_frames_equal_the_parts_put_together(items: list[OracleMessage], topic: str, partition: int) -> None:
    given = [item.payload if item.magic == 1 else Message(item.payload, magic=0) for item in items]
    frame, largest = native.encode_produce(wire.produce_head(topic, partition), given)
    assert frame == wire.encode_produce(wire.ProduceRequest(topic, partition, encode_set(items)))
    assert largest == max((len(item.payload) for item in items), default=0)


@pytest.mark.parametrize("bad", ["text", 5, None, bytearray(b"x")])
def test_a_produce_frame_takes_messages_and_bytes_alone(bad: object) -> None:
    with pytest.raises(TypeError):
        native.encode_produce(wire.produce_head("t", 0), [b"good", bad])  # type: ignore[list-item]


@pytest.mark.parametrize("pair", [list, "tuple", tuple[int, int], type("Larger", (tuple,), {})])
def test_a_pair_is_a_named_tuple(pair: object) -> None:
    with pytest.raises(TypeError, match="named tuple"):
        PairIterator(MessageIterator(HELLO_1), pair)  # type: ignore[type-var, arg-type]


def test_a_pair_is_the_type_that_was_asked_for() -> None:
    (found,) = MessageSet(HELLO_0, 7)
    assert type(found) is MessageAndOffset
    assert (found.message.payload, found.offset) == (b"hello", 7 + len(HELLO_0))
    assert found == (found.message, found.offset)
    assert gc.is_tracked(found)


def test_pairs_kept_are_not_changed_by_the_next_ones() -> None:
    data = encode_set([OracleMessage(b"%d" % number) for number in range(1000)])
    kept = list(MessageSet(data).shallow())
    assert [pair.message.payload for pair in kept] == [b"%d" % number for number in range(1000)]
    assert [pair.offset for pair in kept] == sorted({pair.offset for pair in kept})


@given(deep_sets, st.integers(0, 2**60))
def test_iterating_equals_the_oracles(items: list[OracleMessage], base: int) -> None:
    data = encode_set(items)
    iterator = MessageIterator(data, base)
    assert [(m.payload, iterator.next_offset) for m in iterator] == list(read_deep(data, base))
    assert [(m.payload, offset) for m, offset in MessageSet(data, base)] == list(read_deep(data, base))
    assert iterator.next_offset == base + len(data)
    summary = check_deep(data)
    assert summary.valid_size == len(data)
    assert summary.outer_count == len(items)
    assert summary.message_count == len(list(read_deep(data)))


@given(deep_sets, st.data())
def test_a_cut_set_gives_its_whole_messages(items: list[OracleMessage], data: st.DataObject) -> None:
    whole = encode_set(items)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        expected = list(read_entries(cut))
    except OracleError:
        with pytest.raises(InvalidMessageSize):
            valid_size(cut)
        with pytest.raises(InvalidMessageSize):
            list(MessageIterator(cut))
        return
    assert valid_size(cut) == sum(len(m.encode()) for _, m in expected)
    assert [m.payload for m in MessageIterator(cut, shallow=True)] == [m.payload for _, m in expected]


@settings(max_examples=400)
@given(deep_sets.filter(bool), st.data())
def test_mutated_bytes_give_what_the_oracle_gives_or_an_error(items: list[OracleMessage], data: st.DataObject) -> None:
    raw = bytearray(encode_set(items))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(raw)
    try:
        expected = [m.payload for _, m in read_entries(raw)]
    except OracleError:
        expected = None
    fault = native.check(raw)[4]
    if expected is not None:
        assert fault in {0, native.BAD_CODEC}
        assert [m.payload for m in MessageIterator(raw, shallow=True)] == expected
    else:
        assert fault != 0
    for read in (lambda: list(MessageIterator(raw)), lambda: list(messages(raw)), lambda: check_deep(raw)):
        try:
            read()
        except (ClassicError, MessageSetError):
            continue


@given(st.binary(max_size=200))
def test_noise_never_crashes(noise: bytes) -> None:
    native.check(noise)
    for read in (lambda: list(MessageIterator(noise)), lambda: check_deep(noise)):
        try:
            read()
        except (ClassicError, MessageSetError):
            continue


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(b"\xff\xff\xff\xff" + HELLO_1, "BAD_SIZE", id="negative size"),
        pytest.param(struct.pack(">i", 4) + bytes(4), "BAD_SIZE", id="size below the header"),
        pytest.param(struct.pack(">ib", 5, 1) + bytes(4), "BAD_SIZE", id="magic 1 in the room of magic 0"),
        pytest.param(HELLO_1[:-1], "PARTIAL", id="first message cut"),
        pytest.param(struct.pack(">i", 0x7FFFFFFF), "PARTIAL", id="huge size"),
        pytest.param(HELLO_1[:4] + b"\x02" + HELLO_1[5:], "BAD_MAGIC", id="magic 2"),
        pytest.param(HELLO_1[:-1] + b"x", "BAD_CRC", id="payload changed"),
        pytest.param(OracleMessage(b"", attributes=3).encode(), "BAD_CODEC", id="codec 3"),
    ],
)
def test_each_fault_has_its_name(data: bytes, fault: str) -> None:
    assert native.check(data)[4] == getattr(native, fault)
    with pytest.raises(MessageSetError) as caught:
        check_deep(data)
    assert caught.value.fault == getattr(native, fault)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_fewer_than_four_bytes_are_an_end(size: int) -> None:
    assert list(MessageIterator(HELLO_1[:size])) == []
    assert native.check(HELLO_1[:size]) == (0, 0, 0, 0, 0)


def test_a_fault_behind_good_messages_comes_after_them() -> None:
    data = HELLO_1 + HELLO_0 + HELLO_1[:-1] + b"x"
    iterator = MessageIterator(data, 100)
    assert [next(iterator).payload, next(iterator).payload] == [b"hello", b"hello"]
    with pytest.raises(InvalidMessage, match="wrong message checksum, at offset 129"):
        next(iterator)
    assert iterator.next_offset == 129


@pytest.mark.parametrize("codec", [1, 2])
def test_wrappers_of_both_codecs_round_trip(codec: int) -> None:
    payloads = [random.Random(i).randbytes(i * 37) for i in range(60)]
    data = encode_message_set(payloads, codec)
    assert native.check(data)[1] == 1
    assert [m.payload for m in MessageIterator(data)] == payloads
    assert [m.codec for m in MessageIterator(data, shallow=True)] == [codec]
    assert check_deep(data).message_count == 60


def test_no_messages_give_no_bytes_with_a_codec_too() -> None:
    assert encode_message_set([], 1) == b""


def test_snappy_is_read_as_a_stream_of_blocks_and_raw() -> None:
    inner = native.encode([bytes([i]) * 1000 for i in range(100)])
    stream = snappy_stream(inner)
    assert stream[:16] == bytes.fromhex("82534e41505059000000000100000001")
    raw = bytes(cramjam.snappy.compress_raw(inner))
    for payload in (stream, raw):
        data = native.encode([Message(payload, attributes=2)])
        assert len(list(MessageIterator(data))) == 100


def test_inside_a_wrapper_the_offset_is_its_start_until_the_last_message() -> None:
    data = HELLO_1 + encode_message_set([b"a", b"b", b"c"], 1) + HELLO_0
    end = len(data) - len(HELLO_0)
    iterator = MessageIterator(data, 1000)
    assert [(m.payload, iterator.next_offset) for m in iterator] == [
        (b"hello", 1015), (b"a", 1015), (b"b", 1015), (b"c", 1000 + end), (b"hello", 1000 + len(data)),
    ]  # fmt: skip


def test_an_empty_wrapper_advances_the_offset() -> None:
    data = native.encode([Message(gzip.compress(b""), attributes=1), Message(b"next")])
    iterator = MessageIterator(data)
    assert [m.payload for m in iterator] == [b"next"]
    assert iterator.next_offset == len(data)
    assert check_deep(data).message_count == 1


def test_wrappers_in_wrappers_are_read_to_the_limit_and_refused_beyond() -> None:
    data = native.encode([b"core"])
    for _ in range(4):
        data = wrap(data, 1)
    assert [m.payload for m in MessageIterator(data)] == [b"core"]
    assert check_deep(data).message_count == 1
    deeper = wrap(data, 1)
    with pytest.raises(InvalidMessage):
        list(MessageIterator(deeper))
    with pytest.raises(MessageSetError):
        check_deep(deeper)
    with pytest.raises(MessageSetError):
        list(messages(deeper))


@pytest.mark.parametrize("codec", [1, 2])
def test_a_bomb_is_refused_at_the_limit(codec: int) -> None:
    bomb = wrap(native.encode([bytes(4_000_000)]), codec)
    assert len(bomb) < 400_000
    with pytest.raises(MessageSetError):
        check_deep(bomb, size_max=1_000_000)
    with pytest.raises(MessageSetError):
        list(messages(bomb, size_max=1_000_000))
    assert check_deep(bomb, size_max=5_000_000).message_count == 1


def test_an_inner_set_that_was_cut_is_refused_on_append() -> None:
    inner = native.encode([b"one", b"two"])[:-1]
    data = native.encode([Message(gzip.compress(inner), attributes=1)])
    with pytest.raises(MessageSetError):
        check_deep(data)


def test_a_stopped_iterator_gives_nothing_more() -> None:
    iterator = MessageIterator(encode_message_set([b"a", b"b"], 1) + HELLO_1)
    next(iterator)
    iterator.stop()
    assert list(iterator) == []
    assert iterator.next_offset == 0


@pytest.mark.parametrize("bad", ["text", 5, None])
def test_a_message_is_made_of_bytes(bad: object) -> None:
    with pytest.raises(TypeError):
        Message(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.encode([bad])  # type: ignore[list-item]


def test_messages_are_values() -> None:
    assert Message(b"a") == Message(bytearray(b"a"))
    assert len({Message(b"a"), Message(b"a"), Message(b"a", magic=0), Message(b"a", attributes=1)}) == 3
    assert Message(b"abc").size == 9
    assert Message(b"abc", magic=0).size == 8
    with pytest.raises(ValueError, match="magic"):
        Message(b"", magic=2)
    with pytest.raises(ValueError, match="attributes"):
        Message(b"", magic=0, attributes=1)
