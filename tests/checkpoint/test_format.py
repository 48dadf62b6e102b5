import errno
import itertools
import os
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import Snapshot, checkpoint_step, read_checkpoint, write_checkpoint
from runhooks.checkpoint.attempts import sweep
from runhooks.checkpoint.format import StoredCheckpoint, find_checkpoints
from runhooks.checkpoint.tensors import PIECE_BYTES
from runhooks.errors import DataLossError

SNAPSHOT = Snapshot({"w": np.arange(6.0).reshape(2, 3)}, {"hook": {"best": 0.5}})
OTHER = Snapshot({"w": np.zeros(1)}, {})
FILE = "checkpoint.safetensors"


def write(path, snapshot=SNAPSHOT):
    write_checkpoint(path, snapshot, global_step=7)
    return path


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("left", [0, 1, 200, None])
def test_a_disk_that_gets_full_leaves_the_earlier_one(tmp_path, small_disk, monkeypatch, left):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write(tmp_path / "model-7")
    with small_disk(1 << 20 if left is None else left), monkeypatch.context() as patch:
        if left is None:  # it is noticed when the file is synced
            patch.setattr(os, "fsync", fail)
        for name in ("model-7", "model-8"):
            with pytest.raises(OSError, match=f"No space left.*{name}/{FILE}"):
                write(tmp_path / name, OTHER)
    assert names(tmp_path) == ["model-7"]
    assert names(path) == [FILE]
    assert read_checkpoint(path).states == SNAPSHOT.states


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    path = tmp_path / "model-7"
    fsync = os.fsync
    synced = []  # what, and whether the checkpoint had its name by then

    def noted(descriptor):
        fsync(descriptor)
        inode = os.fstat(descriptor).st_ino
        (found,) = (it for it in [tmp_path, *tmp_path.rglob("*")] if it.stat().st_ino == inode)
        synced.append(("." if found == tmp_path else found.name, (path / FILE).exists()))

    monkeypatch.setattr(os, "fsync", noted)
    write(path)
    file, folder, parent = synced
    assert file[0].startswith("attempt-")
    assert not file[1]
    assert [folder, parent] == [("model-7", True), (".", True)]


def test_comes_back_as_it_was(tmp_path):
    back = read_checkpoint(write(tmp_path / "new" / "folders" / "model-7"))
    np.testing.assert_array_equal(back.arrays["w"], SNAPSHOT.arrays["w"])
    assert back.states == SNAPSHOT.states
    assert names(tmp_path / "new" / "folders") == ["model-7"]
    assert names(tmp_path / "new" / "folders" / "model-7") == [FILE]


def test_it_says_when_it_was_saved(tmp_path, fake_clock):
    fake_clock.advance(5)
    (found,) = find_checkpoints(write(tmp_path / "model-7").parent)
    assert (found.step, found.wall_time) == (7, 1_700_000_005.0)


@pytest.mark.parametrize(
    ("call", "other"), [("replace", write), ("open", shutil.rmtree), ("open", Path.rmdir)]
)
def test_another_process_may_save_or_remove_the_same_step_meanwhile(
    tmp_path, monkeypatch, call, other
):
    path = tmp_path / "model-7"
    if other is not Path.rmdir:
        write(path)
    real = getattr(Path, call)

    def other_first(self, *arguments):
        if self.name.startswith("attempt-"):
            patch.undo()
            other(path)
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, other_first)
        write(path, OTHER)
    assert read_checkpoint(path).arrays["w"].shape == (1,)
    assert names(tmp_path) == ["model-7"]


def test_one_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path):
    stored = StoredCheckpoint(write(tmp_path / "model-7"))
    write(tmp_path / "model-7", OTHER)
    np.testing.assert_array_equal(stored.arrays()["w"], SNAPSHOT.arrays["w"])


def test_a_small_array_in_two_pieces_keeps_neither(tmp_path, monkeypatch):
    monkeypatch.setattr("runhooks.checkpoint.tensors.mapped", lambda _: None)
    arrays = {"a": np.zeros(PIECE_BYTES - 512, np.uint8), "b": np.full(1024, 7, np.uint8)}
    path = tmp_path / "model.ckpt-1"
    write_checkpoint(path, Snapshot(arrays, {}), global_step=1)
    found = rh.load(path, "b")
    assert found.tobytes() == arrays["b"].tobytes()
    while found.base is not None:
        found = found.base
    assert found.nbytes < 4096


@pytest.mark.parametrize("mapped", [True, False])
def test_any_array_lies_where_it_should(tmp_path, monkeypatch, mapped):
    """Whatever the sizes: next to each other, over the edges of pieces, and empty."""
    if not mapped:
        monkeypatch.setattr("runhooks.checkpoint.files._is_local", lambda device: False)
    random = np.random.default_rng(0)
    small = itertools.product(["i1", "?", "f2", "f4", "c16", "M8[ns]"], [0, 1, 3, 63, 64, 65, 1000])
    large = [
        ("i1", PIECE_BYTES - 1),
        ("f4", PIECE_BYTES),
        ("i1", 9_000_001),
        ("f2", PIECE_BYTES + 7),
    ]
    arrays = {
        f"{dtype}/{size}": random.integers(0, 2, size // np.dtype(dtype).itemsize).astype(dtype)
        for dtype, size in (*small, *large)
    }
    path = write(tmp_path / "model-7", Snapshot(arrays, {}))
    back = read_checkpoint(path).arrays
    assert back.keys() == arrays.keys()
    for name, array in back.items():
        assert (array.dtype, array.tobytes()) == (arrays[name].dtype, arrays[name].tobytes())
        assert array.flags.aligned
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0 or array.nbytes % 64
    flip_a_byte(path / FILE)
    large = rh.load(path, [f"f4/{PIECE_BYTES}"])  # for which no more is read
    assert large["f4"][str(PIECE_BYTES)].tobytes() == arrays[f"f4/{PIECE_BYTES}"].tobytes()
    with pytest.raises(DataLossError, match=FILE):
        read_checkpoint(path)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_never_replaces_what_is_not_a_checkpoint(tmp_path, what):
    path = tmp_path / "precious"
    (path if what == "file" else path / "thesis.tex").parent.mkdir(exist_ok=True)
    (path if what == "file" else path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="precious"):
        write(path)
    assert names(tmp_path) == ["precious"]


def test_a_folder_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        write(tmp_path / "file" / "model-7")


def test_what_cannot_be_saved_leaves_no_trace(tmp_path):
    for bad in (Snapshot({"w": np.array([None])}, {}), Snapshot({}, {"hook": object()})):
        with pytest.raises(TypeError, match="'w'|'hook'"):
            write(tmp_path / "deeper" / "model-7", bad)
    assert names(tmp_path) == []


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def flip_a_byte(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_file_of_another_size_is_found_without_reading_it(tmp_path):
    path = write(tmp_path / "model-7")
    assert checkpoint_step(path) == 7
    truncate(path / FILE)
    with pytest.raises(DataLossError, match=FILE):
        checkpoint_step(path)


def test_any_flipped_bit_is_found(tmp_path):
    file = write(tmp_path / "model-7") / FILE
    data = file.read_bytes()
    for at, byte in enumerate(data):
        file.write_bytes(data[:at] + bytes([byte ^ 32]) + data[at + 1 :])  # a letter's other case
        with pytest.raises(DataLossError):
            read_checkpoint(file.parent)


def test_left_overs_of_dead_processes_are_swept(tmp_path, fake_clock):
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    gone, alive, earlier_life = 2**22 + 1, os.getppid(), os.getpid()
    stale = [f"attempt-{host}-{gone}-0a0a0a0a-0-1", f"attempt-{host}-{earlier_life}-0a0a0a0a-3-1"]
    kept = [
        "attempt-mine",
        "attempt-elsewhere-1-0a0a0a0a-0-1",
        f"attempt-{host}-{alive}-0a0a0a0a-0-1",
    ]
    half = tmp_path / "m-1"
    half.mkdir()
    for name in stale + kept:
        (half / name).touch()
        os.utime(half / name, (1_700_000_000, 1_700_000_000))
    sweep(tmp_path)
    assert names(half) == sorted(kept)
    fake_clock.advance(90_000)
    sweep(tmp_path)
    assert names(half) == ["attempt-mine"]
