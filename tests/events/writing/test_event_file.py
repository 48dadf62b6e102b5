import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runhooks.events import Event
from runhooks.events.format.record import frame
from runhooks.events.writing.event_file import EventFile
from runhooks.testing.fake_clock import FakeClock
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


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_however_many_files_there_are_they_take_few_descriptors(tmp_path: Path) -> None:
    before = descriptors()
    files = [EventFile(str(tmp_path / str(number))) for number in range(60)]
    for step in range(3):
        for file in files:
            file.write(frame(Event(5.0, step).SerializeToString()))
        assert descriptors() <= before + 20
    assert not any(file.is_gone for file in files)
    for file in files:
        file.close()
        assert file.is_gone
        assert [event.step for event in events_in(file.path)] == [0, 0, 1, 2]
    assert descriptors() <= before  # files of other tests may rest now


def test_files_are_opened_by_several_threads_at_a_time(tmp_path: Path) -> None:
    def open_files(folder: int) -> list[EventFile]:
        return [EventFile(str(tmp_path / str(folder))) for _ in range(60)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as threads:
            for files in threads.map(open_files, range(16)):
                for file in files:
                    file.close()
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("other", [False, True])
def test_a_file_that_rests_may_be_deleted_as_any(tmp_path: Path, other: bool) -> None:
    file = EventFile(str(tmp_path))
    assert file.rest()
    assert not file.has_descriptor
    assert not file.is_gone
    (file.path.rename if other else lambda to: file.path.unlink())(tmp_path / "moved")
    if other:
        file.path.write_bytes(b"of somebody else")
    assert file.is_gone
    with pytest.raises(FileNotFoundError, match="deleted"):
        file.write(frame(b""))
    if other:
        assert file.path.read_bytes() == b"of somebody else"
    file.close()
