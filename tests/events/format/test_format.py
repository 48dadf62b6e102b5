"""The bytes of event files: fields, events and records, held against Protocol Buffers."""

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

from runhooks.errors import DataLossError
from runhooks.events import Event, SessionLog, SessionStatus, frame, read_records
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


class Lazy:
    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        return b"\x0a\x03\x0a\x01a"


def test_every_field_is_protobufs() -> None:
    event = Event(
        wall_time=12.5,
        step=-7,
        summary=Lazy(),
    )
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert (read.wall_time, read.step, read.summary.value[0].tag) == (12.5, -7, "a")

    event = Event(1.0, 3, session_log=SessionLog(SessionStatus.CHECKPOINT, "a/b", "saved"))
    log = event_pb2.Event.FromString(event.SerializeToString()).session_log
    assert (log.status, log.checkpoint_path, log.msg) == (3, "a/b", "saved")

    event = Event(1.0, 1 << 40, graph_def=b"graph")
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert (read.step, read.graph_def) == (1 << 40, b"graph")

    metadata = event_pb2.TaggedRunMetadata(tag="step 3", run_metadata=b"times")
    event = Event(1.0, tagged_run_metadata=metadata)
    read = event_pb2.Event.FromString(event.SerializeToString())
    assert read.tagged_run_metadata == metadata


@pytest.mark.parametrize("step", [np.int64(300), np.int32(-7), np.uint8(200)])
def test_a_step_may_be_of_numpy(step: np.integer) -> None:
    assert Event.FromString(Event(1.0, step).SerializeToString()).step == step


@pytest.mark.parametrize(
    "event",
    [
        Event(0.0),
        Event(1.5, 9, summary=b"abc"),
        Event(1.5, -9, session_log=b""),
        Event(1.5, graph_def=b"g"),
        Event(1.5, tagged_run_metadata=b"t"),
        Event(1.5, file_version="brain.Event:2"),
    ],
)
def test_an_event_reads_back(event: Event) -> None:
    assert Event.FromString(event.SerializeToString()) == event


def test_the_statuses_are_protobufs() -> None:
    assert dict(event_pb2.SessionLog.SessionStatus.items()) == {
        status.name: status.value for status in SessionStatus
    }


def test_what_is_no_event_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="4 or 8 bytes"):
        Event.FromString(b"\x0a\x00")


same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
payloads = st.lists(st.binary(max_size=200), max_size=6)


def read(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return list(read_records(file, str(path)))


@same_folder
@given(payloads)
def test_records_read_back_here_and_in_tensorboard(tmp_path: Path, written: list[bytes]) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(map(frame, written)))
    assert read(path) == written
    assert list(RawEventFileLoader(str(path)).Load()) == written


@same_folder
@given(st.binary(min_size=1, max_size=60), st.data())
def test_any_flipped_bit_is_found(tmp_path: Path, payload: bytes, data: st.DataObject) -> None:
    good, record = frame(b"good"), bytearray(frame(payload))
    position = data.draw(st.integers(0, len(record) - 1))
    record[position] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "records"
    path.write_bytes(good + record + good)
    with pytest.raises(DataLossError, match=f"byte {len(good)} ") as raised:
        read(path)
    assert raised.value.path == str(path)


def test_the_framing_is_that_of_tfrecord() -> None:
    # The empty payload, as TensorFlow frames it.
    assert frame(b"").hex() == "0000000000000000" + "29039807" + "d8ea82a2"


def test_records_before_the_damage_are_read(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(frame(b"first") + bytes(40))
    with path.open("rb") as file:
        records = read_records(file, str(path))
        assert next(records) == b"first"
        with pytest.raises(DataLossError, match="length .*byte 21 "):
            next(records)


@same_folder
@given(payloads, st.binary(max_size=99), st.data())
def test_reading_goes_on_where_a_record_was_being_written(
    tmp_path: Path, written: list[bytes], last: bytes, data: st.DataObject
) -> None:
    record = frame(last)
    cut = data.draw(st.integers(0, len(record) - 1))
    path = tmp_path / "records"
    path.write_bytes(b"".join(map(frame, written)) + record[:cut])
    with path.open("rb") as file, path.open("ab", buffering=0) as writer:
        assert list(read_records(file, str(path))) == written
        assert file.tell() == path.stat().st_size - cut
        writer.write(record[cut:])
        assert list(read_records(file, str(path))) == [last]
