from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runhooks.checkpoint import (
    Snapshot,
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    write_checkpoint,
)
from runhooks.checkpoint.latest import find_checkpoints
from runhooks.errors import NotFoundError


def write(path: Path, step: int | None) -> str:
    write_checkpoint(path, Snapshot({"w": np.zeros(1)}, {}), global_step=step)
    return str(path)


def test_a_directory_without_any(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None
    assert checkpoints(tmp_path) == []


def test_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / "run" / "model-3", 3)
    assert latest_checkpoint("~/run") == path
    assert checkpoint_step("~/run/model-3") == 3


def test_the_order_is_that_of_saving(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"model-{step}", step) for step in (9, 100, 20)]
    assert checkpoints(tmp_path) == paths
    assert latest_checkpoint(tmp_path) == paths[2]
    assert latest_checkpoint(str(tmp_path)) == paths[2]
    assert checkpoint_step(paths[2]) == 20


@pytest.mark.usefixtures("fake_clock")
def test_of_those_saved_at_one_moment_the_order_is_that_of_steps_and_names(tmp_path: Path) -> None:
    saved = [("model-100", 100), ("weights", None), ("b-9", 9), ("a-9", 9)]
    paths = [write(tmp_path / name, step) for name, step in saved]
    assert checkpoints(tmp_path) == [paths[1], paths[3], paths[2], paths[0]]
    assert checkpoint_step(paths[1]) is None


def test_what_else_is_in_the_directory_is_left_alone(tmp_path: Path) -> None:
    for name in ("model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001", "checkpoint"):
        (tmp_path / name).write_bytes(b"TensorFlow's")
    (tmp_path / "images-99").mkdir()
    (tmp_path / "images-99" / "1.png").write_bytes(b"")
    (tmp_path / "model-13").mkdir()
    (tmp_path / "model-13" / "attempt-host-1-0a0a0a0a-0-checkpoint.safetensors").touch()
    (tmp_path / "plots-1").mkdir()
    (tmp_path / "gone-2").symlink_to(tmp_path / "nowhere")
    (tmp_path / "x-3").mkdir()
    (tmp_path / "x-3" / "model.safetensors").write_text("another's")
    assert find_checkpoints(tmp_path) == []


def test_an_unfinished_one_is_none(tmp_path: Path) -> None:
    sound, unfinished = write(tmp_path / "model-1", 1), write(tmp_path / "model-2", 2)
    Path(unfinished, "checkpoint.safetensors").unlink()
    (tmp_path / "model-3").mkdir()
    assert checkpoints(tmp_path) == [sound]
    for name in ("model-2", "model-3", "model-4"):
        with pytest.raises(NotFoundError):
            checkpoint_step(tmp_path / name)


def test_one_that_is_cut_short_is_not_complete(tmp_path: Path) -> None:
    sound, damaged = write(tmp_path / "model-1", 1), Path(write(tmp_path / "model-2", 2))
    (damaged / "checkpoint.safetensors").write_bytes(b"")
    assert latest_checkpoint(tmp_path) == sound
    assert [it.path for it in find_checkpoints(tmp_path)] == [Path(sound), damaged]


@pytest.mark.parametrize("before", ["lstat", "open"])
@pytest.mark.parametrize("damaged", [False, True])
def test_one_that_is_removed_while_it_is_looked_at_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, damaged: bool
) -> None:
    old, new = tmp_path / "model-5", tmp_path / "model-6"
    write(old, 5)
    if damaged:
        (old / "checkpoint.safetensors").write_bytes(b"")
    call = getattr(os, before)

    def late(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, Path) and old in (path, path.parent):
            monkeypatch.undo()
            write(new, 6)
            shutil.rmtree(old)
        return call(path, *args, **kwargs)

    monkeypatch.setattr(os, before, late)
    assert latest_checkpoint(tmp_path) == str(new)


def test_a_directory_that_is_removed_meanwhile_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    assert checkpoints(tmp_path / "gone") == []
