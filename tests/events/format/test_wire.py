import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2

from runhooks.events.format import proto

int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@given(int64s)
def test_an_int64_reads_back_here_and_in_protobuf(value: int) -> None:
    message = proto.varint_field(2, value)
    assert event_pb2.Event.FromString(message).step == value
    ((number, read),) = proto.fields(message)
    assert (number, proto.as_int(read)) == (2, value)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_float_beyond_float32_becomes_infinite(sign: int) -> None:
    message = proto.float_field(2, sign * 1e300)
    assert proto.as_float(next(proto.fields(message)).value) == sign * math.inf


@given(st.lists(st.tuples(st.integers(1, 99), st.one_of(int64s, st.binary(max_size=40)))))
def test_concatenated_fields_are_one_message(written: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(
        proto.varint_field(number, value)
        if isinstance(value, int)
        else proto.bytes_field(number, value)
        for number, value in written
    )
    read = [
        (number, proto.as_int(value) if isinstance(value, int) else value)
        for number, value in proto.fields(message)
    ]
    assert read == written


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_value_error(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert sum(1 for _ in proto.fields(message)) <= len(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x08", "byte 1$"),
        (b"\x08" + b"\x80" * 11, "ten bytes"),
        (b"\x0a\x05abc", "field 1 .*byte 7 of 5"),
        (b"\x09\x00", "field 1 .*byte 9 of 2"),
        (b"\x0b", "field 1 .*wire type 3"),
    ],
)
def test_what_is_no_message_says_why(message: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(proto.fields(message))


def test_a_field_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="varint"):
        proto.as_int(b"ab")
    with pytest.raises(ValueError, match="varint 7"):
        proto.as_bytes(7)
    with pytest.raises(ValueError, match="4 or 8 bytes"):
        proto.as_float(b"abc")
    with pytest.raises(ValueError, match="18446744073709551616"):
        proto.varint(1 << 64)
