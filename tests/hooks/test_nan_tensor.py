"""``NanTensorHook`` finds a NaN and names tensor, step and value; late, it looks one run later."""

import logging
import math
from contextlib import nullcontext

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook

pytestmark = pytest.mark.every_engine


class Numbers:
    """The losses of a run, one after the other; ``losses[-1]`` for ever."""

    def __init__(self, losses):
        self.losses = losses

    def __call__(self, step):
        while True:
            yield np.float32(self.losses[min(step, len(self.losses) - 1)])
            step += 1


@pytest.fixture
def build(graph):
    """Makes a train op and a loss that is what the list says, step by step."""

    def build(losses):
        loss = rh.call(lambda x: x * 1, rh.inputs(Numbers(losses)), name="loss")
        step = rh.train.get_or_create_global_step()
        return rh.group(step.assign_add(1), loss), loss

    return build


def run(train_op, hooks, steps=10, **arguments):
    """The steps made until a hook stops them."""
    with rh.MonitoredSession(hooks=hooks, **arguments) as sess:
        while not sess.should_stop() and steps > 0:
            sess.run(train_op)
            steps -= 1
        return sess.global_step


NAN_AT_4 = [3, 2, 1, math.nan, 1]


def test_nan_fails_the_run_that_makes_it(build):
    train_op, loss = build(NAN_AT_4)
    message = "'loss:0' at step 4 is nan"
    with pytest.raises(rh.train.NanLossDuringTrainingError, match=message) as got:
        run(train_op, [rh.NanTensorHook(loss)])
    assert (got.value.tensor, got.value.step) == ("loss:0", 4)
    assert math.isnan(got.value.value)


def test_late_look_finds_it_one_run_later_and_says_whose_it_was(build):
    train_op, loss = build(NAN_AT_4)
    recorder = RecordingHook()
    recorder.next_due = rh.Due  # asleep: nobody is due, and the hook may look late
    with pytest.raises(rh.train.NanLossDuringTrainingError, match="'loss:0' at step 4 is nan"):
        with rh.MonitoredSession(hooks=[rh.NanTensorHook(loss, late=True), recorder]) as sess:
            for _ in range(4):
                sess.run(train_op)
            assert sess.global_step == 4
            sess.run(train_op)


def test_late_look_at_once_where_another_hook_is_due_so_that_no_checkpoint_has_it(build, tmp_path):
    train_op, loss = build(NAN_AT_4)
    hooks = [
        rh.NanTensorHook(loss, late=True),
        rh.CheckpointSaverHook(tmp_path, save_steps=2),
    ]
    with pytest.raises(rh.train.NanLossDuringTrainingError, match="step 4"):
        run(train_op, hooks)
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


@pytest.mark.parametrize("late", [False, True])
def test_nan_of_the_last_run_is_found_at_the_end_and_no_checkpoint_has_it(build, late, tmp_path):
    train_op, loss = build(NAN_AT_4)
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=100),
        rh.NanTensorHook(loss, late=late),
    ]
    with pytest.raises(rh.train.NanLossDuringTrainingError, match="step 4"):
        run(train_op, hooks, steps=4)
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-0")


@pytest.mark.parametrize(("late", "steps"), [(False, 4), (True, 5)])
def test_nan_may_stop_the_loop_instead(build, late, steps, caplog):
    train_op, loss = build(NAN_AT_4)
    with caplog.at_level(logging.WARNING, "runhooks"):
        assert run(train_op, [rh.NanTensorHook(loss, fail_on_nan_loss=False, late=late)]) == steps
    assert "'loss:0' at step 4 is nan" in caplog.text


@pytest.mark.parametrize("save_steps", [2, 3, 100])
@pytest.mark.parametrize("late", [False, True])
def test_nan_that_stops_the_loop_is_in_no_checkpoint(build, late, save_steps, tmp_path, caplog):
    train_op, loss = build(NAN_AT_4)
    saver = rh.CheckpointSaverHook(tmp_path, save_steps=save_steps)
    with caplog.at_level(logging.WARNING, "runhooks"):
        run(train_op, [rh.NanTensorHook(loss, fail_on_nan_loss=False, late=late), saver])
    last = {2: 2, 3: 3, 100: 0}[save_steps]
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / f"model.ckpt-{last}")
    told = [it.message for it in caplog.records if "not saved as a checkpoint" in it.message]
    assert len(told) == 1
    assert "'loss:0' at step 4 is nan" in told[0]


def test_a_session_that_replaces_one_with_nan_saves_again(tmp_path):
    lost = []

    def values(step):
        yield from [1.0] * 10 if lost else [1.0, math.nan]

    class Lose(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if not lost and run_context.session.global_step == 2:
                lost.append(True)
                raise rh.errors.AbortedError("lost")

    with rh.Graph().as_default():
        loss = rh.call(lambda x: x, rh.inputs(values))
        train_op = rh.group(rh.train.get_or_create_global_step().assign_add(1), loss)
        hooks = [
            rh.NanTensorHook(loss, fail_on_nan_loss=False),
            Lose(),
            rh.StopAtStepHook(last_step=5),
            rh.CheckpointSaverHook(tmp_path, save_steps=100),
        ]
        creator = rh.ChiefSessionCreator(checkpoint_dir=tmp_path)
        assert run(train_op, hooks, session_creator=creator) == 5
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-5")


@pytest.mark.parametrize("goes_on", [False, True])
def test_loop_that_catches_the_error_saves_only_what_it_has_repaired(build, goes_on, tmp_path):
    train_op, loss = build(NAN_AT_4)
    hooks = [rh.NanTensorHook(loss), rh.CheckpointSaverHook(tmp_path, save_steps=100)]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(6):
            try:
                sess.run(train_op)
            except rh.train.NanLossDuringTrainingError:
                if not goes_on:
                    break
    last = 6 if goes_on else 0
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / f"model.ckpt-{last}")


def test_infinity_is_a_number(build):
    train_op, loss = build([1, math.inf, 1])
    assert run(train_op, [rh.NanTensorHook(loss)]) == 10


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_any_element_of_any_float_counts(graph, dtype, late):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    step = rh.train.get_or_create_global_step()
    losses = rh.inputs([np.ones(3, dtype), np.array([1, math.nan, 1], dtype), np.ones(3, dtype)])
    loss = rh.call(lambda x: x + 1, losses, name="losses")
    train_op = rh.group(step.assign_add(1), loss)
    with pytest.raises(rh.train.NanLossDuringTrainingError, match=r"step 2 .*\[3\]"):
        run(train_op, [rh.NanTensorHook("losses:0", late=late)])


def test_it_looks_only_when_its_trigger_says(build):
    train_op, loss = build(NAN_AT_4)
    trigger = rh.Trigger(every_steps=3)  # 3, 6, 9: step 4 is not looked at
    assert run(train_op, [rh.NanTensorHook(loss, trigger=trigger)]) == 10


def test_what_was_not_looked_at_is_forgotten_with_a_lost_session():
    # The NaN of step 1 was in a state that no longer exists when the session is lost in step 2.
    lost = []

    def values(step):
        yield from [1.0, 2.0] if lost else [math.nan, 2.0]

    def lose_once(value):
        if value == 2.0 and not lost:
            lost.append(value)
            raise rh.errors.AbortedError("lost")
        return value

    with rh.Graph().as_default():
        loss = rh.call(lose_once, rh.inputs(values))
        train_op = rh.group(rh.train.get_or_create_global_step().assign_add(1), loss)
        assert run(train_op, [rh.NanTensorHook(loss, late=True)], steps=2) == 1


def objects(*items):
    array = np.empty(len(items), object)
    array[:] = items
    return array


RECORD = [("a", float), ("b", int)]
OTHERS = {
    "objects": (np.array([1.0, math.nan], object), objects("text", None, 1.0)),
    "objects that are arrays": (objects(np.array([1, math.nan]), None), objects(np.ones(2), 1)),
    "dates": (np.array(["2024-01-01", "NaT"], "datetime64[D]"), np.array(["2024"], "datetime64")),
    "times": (np.array([1, "NaT"], "timedelta64[s]"), np.ones(2, "timedelta64[s]")),
    "records": (np.array([(math.nan, 1)], RECORD), np.array([(1, 1)], RECORD)),
    "bytes": (None, np.zeros(2, "V8")),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("what", OTHERS)
def test_arrays_that_are_no_floats_may_have_it_too(what, late):
    with_nan, without = OTHERS[what]
    values = [without, without] if with_nan is None else [without, with_nan]
    with rh.Graph().as_default():
        loss = rh.call(lambda at: values[at], rh.inputs([0, 1]), name="loss")
        train_op = rh.group(rh.train.get_or_create_global_step().assign_add(1), loss)
        if with_nan is None:
            assert run(train_op, [rh.NanTensorHook(loss, late=late)], steps=2) == 2
        else:
            with pytest.raises(rh.train.NanLossDuringTrainingError, match="at step 2 "):
                run(train_op, [rh.NanTensorHook(loss, late=late)], steps=2)


NESTED = {
    "dict": ({"a": 1.0, "b": {"c": math.nan}}, "a dict with NaN in 'b/c'"),
    "tuple of other shapes": ((np.ones(2), np.array(math.nan), None), "a tuple with NaN in '1'"),
    "list": ([np.ones(1), [math.nan]], "a list with NaN in '1/0'"),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("what", NESTED)
def test_nan_in_a_nested_value_is_found_and_its_place_told(what, late):
    value, said = NESTED[what]
    with rh.Graph().as_default():
        loss = rh.call(lambda: value, name="loss")
        with pytest.raises(rh.train.NanLossDuringTrainingError) as caught:
            with rh.MonitoredSession(hooks=[rh.NanTensorHook("loss", late=late)]) as sess:
                sess.run(loss)
                sess.run(loss)
    assert said in str(caught.value)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["state", "state/w"])
@pytest.mark.parametrize("graph_of", [rh.graph, rh.jax.graph])
def test_state_is_looked_at_as_the_run_leaves_it_and_no_checkpoint_has_its_nan(
    graph_of, name, late, tmp_path
):
    def train_step(state, factor):
        return {"w": state["w"] * factor}

    state = {"w": np.ones(2, np.float32)}
    graph = graph_of(train_step, state=state, data=np.array([1, 1, math.nan, 1], np.float32))
    with graph.as_default(), pytest.raises(rh.train.NanLossDuringTrainingError, match="at step 3"):
        hooks = [rh.NanTensorHook(name, late=late), rh.CheckpointSaverHook(tmp_path, save_steps=1)]
        run("train_op", hooks)
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


def test_parameter_of_a_module_is_looked_at_as_the_step_leaves_it():
    import torch

    model = torch.nn.Linear(1, 1)

    def train_step():
        with torch.no_grad():
            model.weight.mul_(math.nan)

    graph = rh.torch.graph(train_step, model=model)
    with graph.as_default(), pytest.raises(rh.train.NanLossDuringTrainingError, match="at step 1"):
        run("train_op", [rh.NanTensorHook("model/weight")])


def test_a_summary_is_refused_as_it_is_never_nan(build):
    train_op, loss = build([1.0])
    summary = rh.summary.scalar("watched", loss)
    with pytest.raises(ValueError, match="loss_tensor must not be a summary, got 'watched:0'"):
        run(train_op, [rh.NanTensorHook(summary)])


@pytest.mark.parametrize(("fails", "level"), [(True, "ERROR"), (False, "WARNING")])
def test_tensorflows_line_is_logged(build, fails, level, caplog):
    train_op, loss = build(NAN_AT_4)
    hooks = [rh.NanTensorHook(loss, fail_on_nan_loss=fails)]
    with pytest.raises(rh.train.NanLossDuringTrainingError) if fails else nullcontext():
        run(train_op, hooks)
    found = [it for it in caplog.records if "Model diverged with loss = NaN." in it.getMessage()]
    assert [it.levelname for it in found] == [level]
