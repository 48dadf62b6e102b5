from dataclasses import dataclass
from pathlib import Path

import pytest

import runhooks as rh
from runhooks.errors import NanLossDuringTrainingError, OpError, add_note, cause, described

SOURCE = Path(rh.__file__).parent


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SlottedError(Exception):
    __slots__ = ("code",)


class DeafError(Exception):
    def add_note(self, note):
        raise RuntimeError("no notes")


class MuteError(Exception):
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


class HiddenError(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize("error", [SlottedError("x"), MuteError("x")])
def test_a_note_is_kept_whatever_the_class_does(error):
    add_note(error, "first")
    add_note(error, "second")
    add_note(error, "first")
    assert error.__notes__ == ["first", "second"]


@pytest.mark.parametrize("kind", [FrozenError, DeafError, HiddenError])
def test_a_note_that_the_class_refuses_is_dropped(kind):
    error = kind(1)
    add_note(error, "first")
    assert kind.__name__ in described(error)


@pytest.mark.parametrize(
    ("error", "description", "its_cause"),
    [
        (ValueError(" x "), "ValueError(' x ')", "x"),
        (ValueError(), "ValueError()", "ValueError"),
        (FrozenError(1), "FrozenError(code=1)", "1"),
        (MuteError("x"), "MuteError", "MuteError"),
    ],
)
def test_an_error_is_told_by_what_it_says_or_its_type(error, description, its_cause):
    assert described(error) == description
    assert cause(error) == its_cause


class TensorFlowsError(Exception):
    """Without ``args``, as those of TensorFlow."""

    def __init__(self, message):
        self._message = message
        super().__init__()

    def __str__(self):
        return self._message


def test_a_cause_of_tensorflows_is_one_line_without_places():
    error = TensorFlowsError("is lost\n\t [[node x]]\nOriginal stack trace: ...")
    assert cause(error) == "is lost"
    assert described(error) == "TensorFlowsError('is lost')"
    assert cause(TensorFlowsError("at 'x'\nNode: 'x'\nis lost\n\t [[x]]")) == "is lost"


def test_an_op_error_is_made_as_ours_or_as_tensorflows():
    ours, theirs = OpError("lost", path="a"), OpError(None, "op", "lost")
    assert (ours.message, ours.op, ours.path) == ("lost", None, "a")
    assert (theirs.message, theirs.op, theirs.path) == ("lost", "op", None)
    with pytest.raises(TypeError, match="2 arguments"):
        OpError(None, "lost")


def test_a_nan_loss_has_fields():
    error = NanLossDuringTrainingError("loss:0", 7, 1.0, "nan")
    assert (error.tensor, error.step, error.value) == ("loss:0", 7, 1.0)
    assert str(error) == NanLossDuringTrainingError("loss:0", 7, 2.0, "nan").args[0]


def test_an_error_that_is_looked_for_in_the_package_is_told_where_it_is():
    with pytest.raises(AttributeError, match=r"it is runhooks\.errors\.NanLossDuringTraining"):
        _ = rh.NanLossDuringTrainingError
    assert not hasattr(rh, "NoSuchError")


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        (rh.train, "AdamOptimizer", "optax or torch.optim.*runhooks.tensorflow.train has"),
        (rh.train, "exponential_decay", "optax.*runhooks.tensorflow.train has"),
        (rh.train, "SessionManager", "tf.Graph, runhooks.tensorflow.train has"),
        (rh.train, "StopAtStpHook", "did you mean 'StopAtStepHook'"),
        (rh, "StopAtStpHook", "did you mean 'StopAtStepHook'"),
        (rh.train, "_private", "'_private'$"),
    ],
)
def test_names_that_are_missing_are_told_where_to_look(module, name, advice):
    with pytest.raises(AttributeError, match=f"no attribute.*{advice}"):
        getattr(module, name)


def test_notes_are_added_by_no_other_function():
    users = [path for path in SOURCE.rglob("*.py") if ".add_note(" in path.read_text()]
    assert [path.name for path in users] == ["errors.py"]
