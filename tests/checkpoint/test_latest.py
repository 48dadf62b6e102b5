from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runhooks.checkpoint import (
    Snapshot,
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    write_checkpoint,
)
from runhooks.errors import DataLossError, NotFoundError


def write(path: Path, step: int | None) -> str:
    write_checkpoint(path, Snapshot({"w": np.zeros(1)}, {}), global_step=step)
    return str(path)


def test_a_directory_without_any(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None
    assert checkpoints(tmp_path) == []


def test_the_order_is_that_of_the_steps(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"model-{step}", step) for step in (100, 9, 20)]
    assert checkpoints(tmp_path) == [paths[1], paths[2], paths[0]]
    assert latest_checkpoint(tmp_path) == paths[0]
    assert latest_checkpoint(str(tmp_path)) == paths[0]
    assert checkpoint_step(paths[2]) == 20


def test_a_checkpoint_without_a_step_comes_first(tmp_path: Path) -> None:
    weights, model = write(tmp_path / "weights", None), write(tmp_path / "model-0", 0)
    assert checkpoints(tmp_path) == [weights, model]
    assert checkpoint_step(weights) is None


def test_what_else_is_in_the_directory_is_left_alone(tmp_path: Path) -> None:
    for name in ("model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001", "checkpoint"):
        (tmp_path / name).write_bytes(b"TensorFlow's")
    (tmp_path / "images-99").mkdir()
    (tmp_path / "images-99" / "1.png").write_bytes(b"")
    (tmp_path / ".tmp-host-1-0a0a0a0a-0-model-13").mkdir()
    write(tmp_path / ".tmp-host-1-0a0a0a0a-1-model-13", 13)
    assert checkpoints(tmp_path) == []


def test_an_unfinished_one_is_not_listed(tmp_path: Path) -> None:
    sound, unfinished = write(tmp_path / "model-1", 1), write(tmp_path / "model-2", 2)
    Path(unfinished, "manifest.json").unlink()
    (tmp_path / "model-3").mkdir()
    assert checkpoints(tmp_path) == [sound]
    with pytest.raises(DataLossError, match=r"manifest\.json is missing"):
        checkpoint_step(unfinished)
    with pytest.raises(NotFoundError):
        checkpoint_step(tmp_path / "model-4")


def test_one_that_was_about_to_be_replaced_is_found(tmp_path: Path) -> None:
    replaced = write(tmp_path / "model-5.replaced", 5)
    assert latest_checkpoint(tmp_path) == replaced
    assert latest_checkpoint(tmp_path) != write(tmp_path / "model-4", 4)
    assert latest_checkpoint(tmp_path) == replaced
    assert write(tmp_path / "model-5", 5) == latest_checkpoint(tmp_path)
    assert not Path(replaced).exists()
