"""Events that are lost in the background belong to the session in which they were written."""

from __future__ import annotations

from pathlib import Path

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
