from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from runhooks.errors import DataLossError
from runhooks.events import frame, read_records

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
