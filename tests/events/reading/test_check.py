"""Is a run sound? Damage is in ``test_damage``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.events import Fold, check

Write = Callable[..., Path]
Make = Callable[..., Any]


def test_a_sound_run(tmp_path: Path, write: Write, scalar: Make) -> None:
    path = write(*(scalar("x", 1, step) for step in (1, 2, 2, 5)), name="a/events.out.tfevents.1")
    (report,) = check(tmp_path)
    assert (report.run, report.path, report.size) == ("a", path, path.stat().st_size)
    assert (report.records, report.partial, report.sound) == (4, 0, True)
    assert [report.damages, report.errors, report.folds] == [[], [], []]


def test_a_curve_that_folds_back(tmp_path: Path, write: Write, scalar: Make, start: Make) -> None:
    write(*(scalar("x", 1, step) for step in (1, 2, 3, 2, 3)))
    write(scalar("x", 1, 1), scalar("y", 1, 9), scalar("y", 1, 8), name="events.out.tfevents.2")
    first, second = check(tmp_path)
    assert (first.sound, first.folds) == (False, [Fold("x", 3, 2)])
    assert (second.sound, second.folds) == (False, [Fold("x", 3, 1), Fold("y", 9, 8)])
    write(start(0), scalar("x", 1, 0), name="events.out.tfevents.3")
    assert all(report.sound for report in check(tmp_path))


def test_images_fold_back_too(tmp_path: Path, write: Write) -> None:
    value = summary_pb2.Summary.Value(tag="i", image=summary_pb2.Summary.Image(height=1))
    summary = summary_pb2.Summary(value=[value])
    write(*(event_pb2.Event(step=step, summary=summary) for step in (5, 4)))
    assert check(tmp_path)[0].folds == [Fold("i", 5, 4)]


def test_steps_at_the_ends_of_int64_do_not_wrap(tmp_path: Path, write: Write, scalar: Make) -> None:
    least, largest = -(1 << 63), (1 << 63) - 1
    write(scalar("x", 1, least), scalar("x", 1, largest), scalar("x", 1, least))
    assert check(tmp_path)[0].folds == [Fold("x", largest, least)]


def test_a_value_that_cannot_be_decoded(tmp_path: Path, write: Write) -> None:
    value = summary_pb2.Summary.Value(tag="h")
    value.histo.bucket.append(1.0)  # without a limit
    path = write(event_pb2.Event(summary=summary_pb2.Summary(value=[value])))
    (report,) = check(tmp_path)
    ((where, offset, skipped, reason),) = report.errors
    assert (where, skipped) == (path, value.ByteSize())
    assert 0 < offset < path.stat().st_size
    assert reason.startswith("a histogram of tag 'h' that cannot be decoded: ")
    assert "0 limits and 1 counts" in reason
    assert str(path) not in reason
    assert not report.sound


def test_nothing_to_check(tmp_path: Path) -> None:
    assert check(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="gone"):
        check(tmp_path / "gone")


@pytest.mark.parametrize("content", [b"hello\n", b"hi\n", b"\x18" + 7 * b"\0" + b"x"])
def test_a_file_that_begins_with_no_record_is_not_sound(
    tmp_path: Path, write: Write, content: bytes
) -> None:
    path = write(content)
    (report,) = check(tmp_path)
    assert (report.sound, report.partial) == (False, 0)
    assert report.damages == [(path, 0, len(content), "no record begins here")]


def test_a_file_that_a_writer_has_just_begun_is_sound(
    tmp_path: Path, write: Write, scalar: Make
) -> None:
    path = write(scalar("x", 1, 1))
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        (report,) = check(tmp_path)
        assert (report.sound, report.partial) == (True, end)
