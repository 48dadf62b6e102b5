"""``CallHook``: a function of the user's own, called at a cadence with values of that very run."""

import json

import pytest

import runhooks as rh
from tests.graph.sources import Loader


def train(hook, engine="python", data=None, **session_arguments):
    """Trains on ``data`` for two epochs; each step adds the element to a total."""
    elements = [1.0, 2.0, 3.0] if data is None else data

    def train_step(total, element):
        return total + element, {"loss": total + element}

    graph = rh.graph(train_step, total=0.0, data=elements, epochs=2, engine=engine)
    with graph.as_default(), rh.MonitoredTrainingSession(hooks=[hook], **session_arguments) as sess:
        while not sess.should_stop():
            sess.run("train_op")
    return sess.global_step


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("tensors", "called"),
    [
        ((), [(), ()]),
        ("loss", [(6.0,), (12.0,)]),
        (["global_step", "loss", "loss"], [(2, 6.0, 6.0), (5, 12.0, 12.0)]),
        (["epoch", "loss"], [(1, 6.0), (2, 12.0)]),
    ],
    ids=["nothing", "one", "twice the same", "epoch"],
)
def test_it_is_called_with_the_values_of_the_last_step_of_each_epoch(tensors, called, engine):
    found = []

    def note(*values):
        found.append(tuple(float(it) for it in values))

    train(rh.CallHook(note, tensors, every_n_epochs=1), engine)
    assert found == called


@pytest.mark.every_engine
def test_the_epoch_and_the_global_step_can_be_written_as_json(engine):
    lines = []

    def note(epoch, step):
        lines.append(json.dumps({"epoch": epoch, "step": step}))

    train(rh.CallHook(note, ["epoch", "global_step"], every_n_epochs=1), engine)
    assert lines == ['{"epoch": 1, "step": 2}', '{"epoch": 2, "step": 5}']


def test_a_dict_names_the_arguments(model, train):
    found = []

    def note(*, loss, at):
        found.append((float(loss), at))

    train(rh.CallHook(note, {"loss": "loss:0", "at": "global_step:0"}, every_n_steps=2), steps=5)
    assert found == [(2.0, 1), (6.0, 3)]  # variables: as before the run


def test_what_it_is_called_with_is_computed_in_no_other_run(model, train):
    made = []
    costly = rh.call(lambda loss: made.append(float(loss)) or loss, model.loss)
    train(rh.CallHook(lambda value: None, [costly], every_n_steps=3), steps=7)
    assert made == [4.0, 10.0]


def test_at_the_end_it_is_called_with_the_final_values(model, train):
    found = []
    hook = rh.CallHook(found.append, ["loss:0"], trigger=rh.Trigger(every_steps=4, at_end=True))
    train(hook, steps=6)
    assert found == [6.0, 12.0]
    found.clear()
    train(hook, steps=2)
    assert found == [4.0]


def test_what_it_returns_stops_nothing(model, train):
    assert train(rh.CallHook(lambda: True, every_n_steps=1), steps=5) == 5


def test_an_error_of_the_function_names_the_hook(model, train):
    hook = rh.CallHook(lambda: 1 // 0, every_n_steps=1, hook_name="division")
    with pytest.raises(ZeroDivisionError) as caught:
        train(hook)
    assert any("division" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("stop_at", [1, 2, 3, 4, 5])
def test_a_resumed_run_calls_it_at_the_ends_of_the_same_epochs(stop_at, tmp_path):
    called = []

    def part(last):
        hook = rh.CallHook(lambda at: called.append(int(at) + 1), "global_step", every_n_epochs=1)
        graph = rh.graph(lambda total, element: total + element, total=0, data=Loader(), epochs=2)
        hooks = [hook, rh.StopAtStepHook(last_step=last)]
        with graph.as_default():
            with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as sess:
                while not sess.should_stop():
                    sess.run("train_op")

    part(stop_at)
    part(100)
    assert called == [3, 6]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "exactly one of trigger|exactly one of every_n_epochs, every_n_steps"),
        ({"every_n_epochs": 1, "every_n_steps": 1}, ValueError, "every_n_steps=1"),
        ({"every_n_epochs": 0}, ValueError, "every_n_epochs must be above 0"),
        ({"every_n_epochs": 0.0004}, ValueError, "every_n_epochs must be at least 0.001"),
        ({"fn": 5, "every_n_steps": 1}, TypeError, "fn must be a function"),
        ({"fn": None, "every_n_steps": 1}, TypeError, "fn must be given"),
        ({"tensors": 5, "every_n_steps": 1}, TypeError, "tensors must be a dict or a list"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        rh.CallHook(**{"fn": print, **arguments})


def test_epochs_must_be_known(model):
    with pytest.raises(ValueError, match=r"CallHook goes by epochs.*steps_per_epoch"):
        rh.MonitoredSession(hooks=[rh.CallHook(print, every_n_epochs=1)])


def test_a_name_that_nothing_has_is_told_when_the_session_is_made(model):
    with pytest.raises(ValueError, match="losss"):
        rh.MonitoredSession(hooks=[rh.CallHook(print, ["losss:0"], every_n_steps=1)])
