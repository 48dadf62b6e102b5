from pathlib import Path

import pytest

from runhooks.errors import DataLossError
from runhooks.events import Event, frame, read_events


def write(path: Path, *events: Event) -> None:
    path.write_bytes(b"".join(frame(event.SerializeToString()) for event in events))


def test_events_come_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "events"
    written = [Event(float(step), step, summary=b"") for step in range(3)]
    write(path, *written)
    assert list(read_events(path)) == written


def test_a_record_that_is_no_event_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(frame(Event(1.0).SerializeToString()) + frame(b"\x0a\x05a"))
    with pytest.raises(DataLossError, match="its record 1 is not an event") as raised:
        list(read_events(path))
    assert raised.value.path == str(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        list(read_events(tmp_path / "no-such-file"))
