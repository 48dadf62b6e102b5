"""An error keeps its class in sessions of a ``tf.Graph`` too."""

from dataclasses import dataclass

import pytest

from runhooks.tensorflow import train


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class Hook(train.SessionRunHook):
    def __init__(self, phase):
        setattr(self, phase, self.fail)

    def fail(self, *args):
        raise FrozenError(5)


@pytest.mark.parametrize(
    "phase", ["begin", "after_create_session", "before_run", "after_run", "end"]
)
def test_an_error_out_of_a_hook_keeps_its_class(model, phase):
    def train_with(hook):
        with train.MonitoredSession(hooks=[hook]) as session:
            session.run(model.train_op)

    with pytest.raises(FrozenError) as caught:
        train_with(Hook(phase))
    assert phase in caught.value.__notes__[0]


def test_an_error_of_the_program_keeps_its_class(model, tmp_path):
    def train_once():
        with train.MonitoredTrainingSession(checkpoint_dir=tmp_path) as session:
            session.run(model.train_op)
            raise FrozenError(5)

    with pytest.raises(FrozenError):
        train_once()
