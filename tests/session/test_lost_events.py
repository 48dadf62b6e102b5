"""Events that are lost in the background belong to the session in which they were written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import runhooks as rh
from runhooks.events import Event
from runhooks.summary import FileWriterCache


class Poison:
    """A message that cannot be written."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers' name)
        raise ValueError("poisoned")


def train(folder: Path, error: BaseException | None = None) -> None:
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step().assign_add(1)
        hooks = [rh.StopAtStepHook(last_step=3)]
        with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                session.run(step)
                if error is not None:
                    writer = FileWriterCache.get(folder)
                    writer.add_event(Event(0.0, 2, summary=Poison()))
                    raise error


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt()])
def test_a_session_that_fails_reports_its_lost_events_and_no_other_does(
    tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised:
        train(tmp_path / "a", error)
    assert raised.value is error
    (note,) = [note for note in error.__notes__ if "poisoned" in note]
    assert str(tmp_path / "a") in note
    train(tmp_path / "b")
    train(tmp_path / "a")
    assert rh.latest_checkpoint(tmp_path / "b")


def test_events_lost_elsewhere_are_told_to_those_who_write_there(tmp_path: Path) -> None:
    writer = rh.summary.FileWriter(tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    writer.scalar("loss", 1.0, 1)
    train(tmp_path / "b")
    assert rh.latest_checkpoint(tmp_path / "b") == str(tmp_path / "b" / "model.ckpt-3")
    with pytest.raises(FileNotFoundError, match="lost 1 item"):
        writer.flush()
    writer.close()


def test_a_training_whose_directory_was_deleted_is_in_nobodys_way(tmp_path: Path) -> None:
    train(tmp_path / "a")
    writer = FileWriterCache.get(tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    writer.add_event(Event(0.0, 1))
    train(tmp_path / "b")
    train(tmp_path / "a")
    assert rh.latest_checkpoint(tmp_path / "a") == str(tmp_path / "a" / "model.ckpt-3")


class Lose(rh.SessionRunHook):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def after_run(self, run_context: Any, run_values: Any) -> None:
        FileWriterCache.get(self.folder).add_event(Event(0.0, 2, summary=Poison()))


def test_events_lost_in_the_directory_of_a_training_fail_its_next_checkpoint(
    tmp_path: Path,
) -> None:
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            hooks=[Lose(tmp_path)],
            save_checkpoint_steps=1,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            with pytest.raises(ValueError, match="poisoned"):
                session.run(step)
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")
