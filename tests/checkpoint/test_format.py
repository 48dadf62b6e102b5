from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runhooks.checkpoint import Snapshot, checkpoint_step, read_checkpoint, write_checkpoint
from runhooks.checkpoint.manifest import Manifest
from runhooks.errors import DataLossError, NotFoundError
from runhooks.testing import FakeClock

SNAPSHOT = Snapshot({"w": np.arange(6.0).reshape(2, 3)}, {"hook": {"best": 0.5}})
OTHER = Snapshot({"w": np.zeros(1)}, {})
FILES = ["manifest.json", "states.json", "variables.safetensors"]


def write(path: Path, snapshot: Snapshot = SNAPSHOT) -> Path:
    write_checkpoint(path, snapshot, global_step=7)
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[None]:
    """The ``at``-th fsync finds the disk full, as one on a real full disk would."""
    calls = iter(range(1, 100))
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if next(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield


@pytest.mark.parametrize("left", [0, 1, 7, 8, 90, 150, 200, 300, 400])
def test_a_disk_that_gets_full_leaves_the_earlier_one(
    tmp_path: Path, small_disk: Any, left: int
) -> None:
    write(tmp_path / "model-6")
    write(tmp_path / "model-7")
    with small_disk(left), pytest.raises(OSError, match="No space left.*model-7/"):
        write(tmp_path / "model-7", OTHER)
    assert names(tmp_path) == ["model-6", "model-7"]
    for path in tmp_path.iterdir():
        assert read_checkpoint(path).states == SNAPSHOT.states


def test_everything_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model-7"
    fsync = os.fsync
    synced: list[tuple[str, bool]] = []  # what, and whether the checkpoint had its name by then

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        inode = os.fstat(descriptor).st_ino
        (found,) = (it for it in [tmp_path, *tmp_path.rglob("*")] if it.stat().st_ino == inode)
        synced.append(("." if found == tmp_path else found.name, path.exists()))

    monkeypatch.setattr(os, "fsync", noted)
    write(path)
    *files, folder, parent = synced
    assert sorted(files) == [(name, False) for name in FILES]
    assert files[-1] == ("manifest.json", False)
    assert folder[0].startswith(".tmp-")
    assert not folder[1]
    assert parent == (".", True)


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    back = read_checkpoint(write(tmp_path / "new" / "folders" / "model-7"))
    np.testing.assert_array_equal(back.arrays["w"], SNAPSHOT.arrays["w"])
    assert back.states == SNAPSHOT.states


def test_leaves_nothing_but_the_checkpoint(tmp_path: Path) -> None:
    assert names(write(tmp_path / "model-7")) == FILES
    assert names(tmp_path) == ["model-7"]


def test_the_manifest_says_what_is_there(tmp_path: Path, fake_clock: FakeClock) -> None:
    fake_clock.advance(5)
    manifest = json.loads((write(tmp_path / "model-7") / "manifest.json").read_text())
    assert manifest["format_version"] == 2
    assert manifest["global_step"] == 7
    assert manifest["wall_time"] == 1_700_000_005.0
    assert manifest["arrays"] == {"w": {"dtype": "float64", "shape": [2, 3]}}
    size = (tmp_path / "model-7" / "states.json").stat().st_size
    assert manifest["files"]["states.json"]["size"] == size


def test_nothing_in_it_is_a_pickle(tmp_path: Path) -> None:
    write(tmp_path / "model-7")
    for name in FILES:
        assert not (tmp_path / "model-7" / name).read_bytes().startswith(b"\x80")


def test_replaces_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "model-7", OTHER)
    write(tmp_path / "model-7")
    assert read_checkpoint(tmp_path / "model-7").arrays["w"].shape == (2, 3)
    assert names(tmp_path) == ["model-7"]


def test_another_process_may_save_the_same_step_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model-7")
    rename, moves = Path.rename, itertools.count(1)

    def other_first(self: Path, target: Path) -> Path:
        """Before some moves of a save, another one is made from start to end."""
        if next(moves) in (1, 2, 4):
            with monkeypatch.context() as patch:
                patch.setattr(Path, "rename", rename)
                write(tmp_path / "model-7")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", other_first)
        write(tmp_path / "model-7", OTHER)
    assert read_checkpoint(tmp_path / "model-7").arrays["w"].shape == (1,)
    assert names(tmp_path) == ["model-7"]


def test_what_another_process_has_moved_away_need_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model-7")
    write(tmp_path / "model-7.replaced")
    rename = Path.rename

    def moved_by_other(self: Path, target: Path) -> Path:
        done = rename(self, target)
        if not self.name.startswith(".tmp-"):
            rename(self, target)  # which finds nothing, as one who comes too late
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", moved_by_other)
        write(tmp_path / "model-7", OTHER)
    assert read_checkpoint(tmp_path / "model-7").arrays["w"].shape == (1,)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_never_replaces_what_is_not_a_checkpoint(tmp_path: Path, what: str) -> None:
    path = tmp_path / "precious"
    (path if what == "file" else path / "thesis.tex").parent.mkdir(exist_ok=True)
    (path if what == "file" else path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="precious"):
        write(path)
    assert names(tmp_path) == ["precious"]


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        write(tmp_path / "file" / "model-7")


@pytest.mark.parametrize("at", range(1, 5), ids=["variables", "states", "manifest", "folder"])
def test_a_full_disk_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    write(tmp_path / "model-7")
    with full_disk(monkeypatch, at), pytest.raises(OSError, match="No space left"):
        write(tmp_path / "model-7", OTHER)
    assert names(tmp_path) == ["model-7"]
    assert read_checkpoint(tmp_path / "model-7").states == SNAPSHOT.states


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch, 1), pytest.raises(OSError, match=r"model-7/variables\.safetensors"):
        write(tmp_path / "model-7")


def test_what_cannot_be_saved_leaves_no_trace(tmp_path: Path) -> None:
    for bad in (Snapshot({"w": np.array([None])}, {}), Snapshot({}, {"hook": object()})):
        with pytest.raises(TypeError, match="'w'|'hook'"):
            write(tmp_path / "deeper" / "model-7", bad)
    assert names(tmp_path) == []


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_found_and_named(
    tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    path = write(tmp_path / "model-7")
    read_checkpoint(path)
    damage(path / name)
    with pytest.raises(DataLossError, match=name) as error:
        read_checkpoint(path)
    assert error.value.path == str(path)


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_files_of_another_size_are_found_without_reading_them(
    tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    path = write(tmp_path / "model-7")
    assert checkpoint_step(path) == 7
    damage(path / name)
    with pytest.raises(DataLossError, match=name):
        checkpoint_step(path)


def test_any_flipped_bit_of_the_manifest_is_found(tmp_path: Path) -> None:
    manifest = write(tmp_path / "model-7") / "manifest.json"
    data = manifest.read_bytes()
    sound = Manifest.from_bytes(data)
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 1
        with contextlib.suppress(ValueError):
            assert Manifest.from_bytes(bytes(damaged)) == sound  # a blank may become another


def test_absent_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="model-7"):
        read_checkpoint(tmp_path / "model-7")


def test_a_newer_format_is_neither_read_nor_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("runhooks.checkpoint.manifest.FORMAT_VERSION", 5)
        path = write(tmp_path / "model-7")
    with pytest.raises(ValueError, match="model-7 .* format is 5"):
        read_checkpoint(path)


def test_what_was_saved_in_format_1_is_read() -> None:
    back = read_checkpoint(Path(__file__).parent / "data" / "format-1")
    np.testing.assert_array_equal(back.arrays["w"], np.arange(6).reshape(2, 3))
    assert back.arrays["global_step"] == 7
    assert back.states == {"EarlyStop": {"best": 0.25, "seen": [1, None, True], "why": "é"}}


def test_left_overs_of_dead_processes_are_swept(tmp_path: Path, fake_clock: FakeClock) -> None:
    from runhooks.checkpoint import staging

    host, here = socket.gethostname(), os.getpid()
    gone, alive, earlier_life = 2**22 + 1, os.getppid(), here
    stale = [f".tmp-{host}-{gone}-0a0a0a0a-0-m-1", f".tmp-{host}-{earlier_life}-0a0a0a0a-3-m-1"]
    kept = [f".tmp-{host}-{alive}-0a0a0a0a-0-m-1", ".tmp-elsewhere-1-0a0a0a0a-0-m-1", ".tmp-mine"]
    for name in stale + kept:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))
    staging.sweep(tmp_path)
    assert names(tmp_path) == sorted(kept)
    fake_clock.advance(90_000)
    staging.sweep(tmp_path)
    assert ".tmp-elsewhere-1-0a0a0a0a-0-m-1" not in names(tmp_path)
