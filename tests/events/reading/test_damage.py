"""Files that are not as they were written: what is sound is read, the rest is named; ``check``."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, summary_pb2

from runhooks.errors import DataLossError
from runhooks.events import Damage, Fold, check, frame, read, read_records, stream
from runhooks.events.format.record import crc32c, masked

Write = Callable[..., Path]
Make = Callable[..., Any]

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
NO_RECORD = "no record begins here"
BAD_PAYLOAD = "the payload of the record has a wrong CRC"


@pytest.fixture
def records(scalar: Make) -> list[bytes]:
    """The records of 1,000 scalars, of step 0 on."""
    return [frame(scalar("x", step, step).SerializeToString()) for step in range(1_000)]


def steps(path: Path) -> list[int]:
    return read(path).only.scalars["x"].steps.tolist()


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 0x10]) + record[at + 1 :]


@pytest.mark.parametrize("which", [0, 1, 500, 998, 999])
@pytest.mark.parametrize(
    ("at", "reason"),
    [(0, NO_RECORD), (7, NO_RECORD), (9, NO_RECORD), (13, BAD_PAYLOAD), (-1, BAD_PAYLOAD)],
)
def test_a_flipped_bit_costs_one_record(
    write: Write, records: list[bytes], which: int, at: int, reason: str
) -> None:
    offset = sum(map(len, records[:which]))
    length = len(records[which])
    records[which] = flipped(records[which], at % length)
    path = write(*records)
    runs = read(path)
    damage = Damage(path, offset, length, reason)
    assert runs.damages == runs.only.damages == [damage]
    assert steps(path) == [step for step in range(1_000) if step != which]
    assert [point.step for point in stream(path)] == steps(path)
    (report,) = check(path)
    assert (report.sound, report.damages, report.records) == (False, [damage], 999)


@pytest.mark.parametrize(
    "rubbish", [bytes(1), bytes(12), bytes(100_000), b"\xff" * 70_000, b"stray"]
)
def test_what_is_no_record_is_passed_over(
    write: Write, records: list[bytes], rubbish: bytes
) -> None:
    path = write(*records[:500], rubbish, *records[500:])
    offset = sum(map(len, records[:500]))
    assert read(path).damages == [Damage(path, offset, len(rubbish), NO_RECORD)]
    assert steps(path) == list(range(1_000))


def test_a_record_cut_off_by_another_process_costs_itself_alone(
    write: Write, records: list[bytes]
) -> None:
    path = write(*records[:10], records[10][:20], *records[11:])
    assert steps(path) == [step for step in range(1_000) if step != 10]
    assert read(path).damages == [
        Damage(path, sum(map(len, records[:10])), 20, BAD_PAYLOAD),
    ]


def test_a_bad_record_at_the_end_is_judged_when_more_has_come(
    write: Write, records: list[bytes]
) -> None:
    torn = records[10][:20]
    whole = b"".join([*records[:10], torn, *records[11:20]])
    end = sum(map(len, records[:11]))  # of what the torn one says that it has
    path = write(whole[:end])
    runs = read(path)
    begin = end - len(records[10])
    assert runs.damages == [Damage(path, begin, len(records[10]), BAD_PAYLOAD)]
    write(whole[end:])
    assert runs.update() == 9
    assert runs.damages == [Damage(path, begin, len(torn), BAD_PAYLOAD)]


@pytest.mark.slow
def test_damage_in_many_places_of_many_blocks(write: Write, scalar: Make) -> None:
    good = [frame(scalar("x", 1, step).SerializeToString()) for step in range(50_000)]
    path = write(
        *(flipped(record, n % 40) if n % 7 == 3 else record for n, record in enumerate(good))
    )
    runs = read(path)
    found = runs.only.scalars["x"].steps.tolist()
    assert found == [step for step in range(50_000) if step % 7 != 3]
    assert len(runs.damages) == len(range(3, 50_000, 7))


def header_of(length: int) -> bytes:
    header = struct.pack("<Q", length)
    return header + struct.pack("<I", masked(crc32c(header)))


@pytest.mark.parametrize("length", [1 << 20, (1 << 31) - 1])
def test_a_large_record_is_waited_for(write: Write, records: list[bytes], length: int) -> None:
    path = write(*records, header_of(length), b"payload")
    assert steps(path) == list(range(1_000))
    assert read(path).damages == []
    assert check(path)[0].partial == 12 + 7


@pytest.mark.parametrize("length", [1 << 31, 1 << 40, (1 << 63) + 7, (1 << 64) - 1])
@pytest.mark.parametrize("which", [0, 500, 1_000])
def test_an_impossible_length_is_damage_and_hides_nothing(
    write: Write, records: list[bytes], length: int, which: int
) -> None:
    bad = header_of(length) + b"payload"
    path = write(*records[:which], bad, *records[which:])
    begin = sum(map(len, records[:which]))
    (damage,) = read(path).damages
    assert damage[:3] == (path, begin, len(bad))
    assert "length" in damage.reason
    assert steps(path) == [point.step for point in stream(path)] == list(range(1_000))
    assert check(path)[0].damages == [damage]
    assert not check(path)[0].sound
    with path.open("rb") as file, pytest.raises(DataLossError, match=f"byte {begin} ") as raised:
        list(read_records(file, str(path)))
    assert raised.value.path == str(path)


def test_a_record_inside_a_record_is_not_read(write: Write, scalar: Make) -> None:
    inner = frame(scalar("inner", 1, 1).SerializeToString())
    outer = [scalar("x", step, step) for step in range(300)]
    for event in outer:
        event.summary.value[0].node_name = "n"
        event.summary.value.add(tag="y").tensor.CopyFrom(_string_tensor(inner))
    path = write(*outer)
    assert list(read(path).only.tags) == ["x", "y"]
    assert read(path).only.tensors["y"][299].value.tolist() == [inner]


def _string_tensor(content: bytes) -> Any:
    from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2

    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    return tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[content]
    )


def test_a_sound_record_that_is_no_event_is_named(write: Write, records: list[bytes]) -> None:
    senseless = [frame(b"\x0a\x05a"), frame(b"\xff" * 30)]
    path = write(records[0], *senseless, records[1])
    assert steps(path) == [0, 1]
    (report,) = check(path)
    assert [(error.offset, error.skipped) for error in report.errors] == [
        (len(records[0]), len(senseless[0])),
        (len(records[0] + senseless[0]), len(senseless[1])),
    ]
    assert (report.sound, report.damages) == (False, [])
    assert read(path).damages == report.errors


@pytest.mark.parametrize("content", [b"hello world " * 40, bytes(500), frame(b"\xff" * 30)])
def test_a_file_of_another_kind_is_refused(write: Write, scalar: Make, content: bytes) -> None:
    path = write(content)
    with pytest.raises(DataLossError, match=r"tfevents\.1 must be an event file"):
        read(path)
    assert not check(path)[0].sound
    assert not read(path.parent).only.tags  # of several files one may be damaged
    write(scalar("x", 1, 1), scalar("x", 1, 2))
    assert steps(path) == [1, 2]


@same_folder
@given(st.lists(st.tuples(st.integers(0, 5_000), st.binary(max_size=20)), max_size=5))
def test_any_damage(write: Write, scalar: Make, damage: list[tuple[int, bytes]]) -> None:
    """All is accounted for: the file is records, damages and a cut end, without a gap between."""
    records = [frame(scalar("x", step, step).SerializeToString()) for step in range(100)]
    path = write()
    content = bytearray(b"".join(records))
    for at, stray in damage:
        content[at : at + len(stray) // 2] = stray
    path.write_bytes(content)
    (report,) = check(path)
    skipped = sum(found.skipped for found in report.damages)
    assert all(found.offset + found.skipped <= report.size for found in report.damages)
    assert steps(path) == sorted(set(steps(path)))
    left = len(content) - skipped - report.partial
    assert left == sum(len(records[step]) for step in steps(path))
    with path.open("ab") as file:
        file.write(frame(scalar("x", 1, 1_000).SerializeToString()) * 2)
    if not report.partial:
        assert steps(path)[-2:] == [1_000, 1_000]


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.skipif(sys.platform == "win32", reason="no such files there")
@pytest.mark.parametrize("place", [a_link_to_nothing, a_link_to_itself, a_fifo, a_device])
@pytest.mark.parametrize("folder", ["a", "b", "."])
def test_a_file_that_cannot_be_read_costs_no_other(
    tmp_path: Path, write: Write, scalar: Make, place: Callable[[Path], None], folder: str
) -> None:
    write(scalar("x", 1, 1), name="a/events.out.tfevents.1")
    write(scalar("x", 2, 2), name="a/events.out.tfevents.3")
    write(scalar("y", 3, 3), name="c/events.out.tfevents.1")
    (tmp_path / "b").mkdir()
    bad = tmp_path / folder / "events.out.tfevents.2"
    place(bad)

    runs = read(tmp_path)
    for _ in range(2):
        (damage,) = runs.damages
        assert damage[:3] == (bad, 0, 0)
        assert "cannot be read" in damage.reason
        assert runs["a"].scalars["x"].steps.tolist() == [1, 2]
        assert runs["c"].scalars["y"].steps.tolist() == [3]
        assert runs.update() == 0
    assert [point.step for point in stream(tmp_path)] == [1, 2, 3]
    (report,) = [report for report in check(tmp_path) if report.path == bad]
    assert (report.sound, report.damages, report.size) == (False, [damage], 0)
    with pytest.raises(OSError, match="tfevents.2"):
        read(bad)
    bad.unlink()
    assert runs.update() == 0
    assert runs.damages == []


def test_a_folder_named_as_an_event_file_is_a_folder(
    tmp_path: Path, write: Write, scalar: Make
) -> None:
    write(scalar("x", 1, 1), name="events.out.tfevents.1")
    write(scalar("y", 2, 2), name="events.out.tfevents.2/events.out.tfevents.1")
    runs = read(tmp_path)
    assert runs.damages == []
    assert runs["."].scalars["x"].steps.tolist() == [1]
    assert runs["events.out.tfevents.2"].scalars["y"].steps.tolist() == [2]
    assert runs["."].update() == 0


def test_a_file_whose_disk_fails_keeps_what_was_read(
    tmp_path: Path, write: Write, scalar: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(scalar("x", 1, 1))
    runs = read(tmp_path)
    write(scalar("x", 2, 2))
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> int:
            raise OSError(errno.EIO, "Input/output error", str(path))

        patch.setattr(os, "open", fail)
        assert runs.update() == 0
        (damage,) = runs.damages
        assert (damage.path, damage.skipped) == (path, 0)
        assert runs.only.scalars["x"].steps.tolist() == [1]
    assert runs.update() == 1
    assert runs.damages == []
    assert runs.only.scalars["x"].steps.tolist() == [1, 2]


@pytest.mark.skipif(sys.platform == "win32", reason="no such rights there")
def test_a_folder_or_file_without_rights_costs_no_other(
    write: Write, scalar: Make, tmp_path: Path
) -> None:
    script = """
import os, sys, tempfile
from pathlib import Path
from runhooks.events import check, read
sound, = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    for name in ("file", "folder", "good"):
        Path(folder, name).mkdir()
        Path(folder, name, "events.out.tfevents.1").write_bytes(bytes.fromhex(sound))
    locked = [Path(folder, "file", "events.out.tfevents.1"), Path(folder, "folder")]
    for path in locked:
        path.chmod(0)
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        os.seteuid(65534)
    try:
        runs = read(folder)
        print([damage.path in locked for damage in runs.damages], list(runs["good"].scalars))
        print([(report.run, report.sound) for report in check(folder)])
    finally:
        os.seteuid(os.getuid())
        locked[1].chmod(0o700)
"""
    path = write(scalar("x", 1, 1))
    command = [sys.executable, "-c", script, path.read_bytes().hex()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.stderr, result.stdout.splitlines()) == (
        "",
        ["[True, True] ['x']", "[('file', False), ('good', True), ('folder', False)]"],
    )


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
