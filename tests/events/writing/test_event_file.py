import os
from pathlib import Path

import pytest

from runhooks.events import Event
from runhooks.events.writing.event_file import EventFile
from runhooks.testing import FakeClock
from tests.event_files import events_in


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_first_record_says_the_version_and_the_time(tmp_path: Path) -> None:
    with FakeClock(wall_start=1_700_000_000.5):
        file = EventFile(str(tmp_path / "new" / "run"))
    file.close()
    assert events_in(file.path) == [Event(1_700_000_000.5, file_version="brain.Event:2")]


def test_the_name_says_when_and_who(tmp_path: Path) -> None:
    with FakeClock(wall_start=1_700_000_000.0):
        EventFile(str(tmp_path), ".mine").close()
    (name,) = names(tmp_path)
    assert name.startswith("events.out.tfevents.1700000000.")
    assert f".{os.getpid()}." in name
    assert name.endswith(".mine")


def test_files_sort_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    files = []
    for wall in (1_700_000_000.0, 1_700_000_000.9, 1_700_000_000.9, 1_600_000_000.0, 1_800_000_000):
        with FakeClock(wall_start=wall):
            files.append(EventFile(str(tmp_path)))
    for file in files:
        file.close()
    assert names(tmp_path) == [file.path.name for file in files]


def test_other_files_of_the_folder_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.old").touch()
    (tmp_path / "model.ckpt-9").mkdir()
    with FakeClock(wall_start=1_700_000_000.0):
        file = EventFile(str(tmp_path))
    file.close()
    assert ".1700000000." in file.path.name


def test_a_folder_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="logdir") as raised:
        EventFile(str(tmp_path / "file" / "run"))
    assert str(tmp_path / "file") in str(raised.value)
