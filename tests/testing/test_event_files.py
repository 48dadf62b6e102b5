from pathlib import Path

import pytest
from tensorboard.compat.proto import summary_pb2

from runhooks.errors import DataLossError
from runhooks.summary import FileWriter, SessionLog, Summary, scalar_value, text_value
from runhooks.testing import FakeClock, read_events


def test_values_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    with FakeClock(wall_start=1_700_000_000.5) as clock:
        for step in (3, 2):
            with FileWriter(tmp_path) as writer:
                writer.add_session_log(SessionLog(status=1), step)
                writer.add_summary(
                    Summary([scalar_value("loss", 0.5), scalar_value("rate", step)]), step
                )
            clock.advance(60)
    assert read_events(tmp_path) == [
        (3, "loss", 0.5, 1_700_000_000.5),
        (3, "rate", 3.0, 1_700_000_000.5),
        (2, "loss", 0.5, 1_700_000_060.5),
        (2, "rate", 2.0, 1_700_000_060.5),
    ]
    (first, _) = sorted(tmp_path.iterdir())
    assert [event.step for event in read_events(first)] == [3, 3]


def test_a_value_that_is_not_a_scalar_comes_as_its_message(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_summary(Summary([text_value("note", "hello")]), 1)
    (event,) = read_events(tmp_path)
    assert isinstance(event.value, bytes)
    message = summary_pb2.Summary.Value.FromString(event.value)
    assert list(message.tensor.string_val) == [b"hello"]


def test_a_directory_may_be_empty(tmp_path: Path) -> None:
    assert read_events(tmp_path) == []


def test_nothing_there_and_damage_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        read_events(tmp_path / "missing")
    FileWriter(tmp_path).close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"\x01" + path.read_bytes())
    with pytest.raises(DataLossError, match="byte 0"):
        read_events(tmp_path)
