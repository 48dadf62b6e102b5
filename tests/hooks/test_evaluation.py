import itertools
import math

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook, read_events


def loop(hooks, op, steps, **kwargs):
    with rh.MonitoredSession(hooks=hooks, **kwargs) as sess:
        for _ in range(steps):
            sess.run(op)


@pytest.fixture
def x(graph):
    return rh.placeholder("x")


@pytest.fixture
def scaled(model, x):
    """The sum of the model's weights, which is two a step, times what is fed."""
    return model.loss * x


def feeds(x, *values):
    return [{x: value} for value in values]


def points(path):
    return [(event.step, event.tag, event.value) for event in read_events(path)]


# --- What is computed


@pytest.mark.every_engine
def test_means_over_the_feeds_with_the_weights_of_that_step(model, x, scaled, tmp_path, caplog):
    caplog.set_level("INFO", "runhooks")
    evaluation = rh.EvaluationHook(
        {"scaled": scaled, "x": "x:0"}, feeds(x, 1.0, 2.0), every_n_steps=2, output_dir=tmp_path
    )
    loop([evaluation], model.train_op, 5)
    assert points(tmp_path) == [
        (2, "scaled", 6.0),
        (2, "x", 1.5),
        (4, "scaled", 12.0),
        (4, "x", 1.5),
    ]
    line = next(line for line in caplog.messages if line.startswith("EvaluationHook at step 4"))
    assert line.startswith("EvaluationHook at step 4: scaled = 12, x = 1.5 (2 runs, ")


@pytest.mark.every_engine
def test_weighted_means(model, x):
    n = rh.placeholder("n")
    batches = [{x: 1.0, n: 3}, {x: 5.0, n: 1}, {x: math.nan, n: 0}]  # of 3, 1 and no examples
    evaluation = rh.EvaluationHook({"x": x}, batches, every_n_steps=1, weight=n)
    loop([evaluation], model.train_op, 1)
    assert evaluation.metrics_by_step() == {1: {"x": 2.0}}


def test_an_input_of_its_own_begins_anew_in_each_evaluation(model):
    test_data = rh.inputs([1.0, 2.0, 3.0], name="test_data")
    inner = RecordingHook(fetches=test_data)
    evaluation = rh.EvaluationHook({"x": test_data}, every_n_steps=2, hooks=[inner])
    loop([evaluation], model.train_op, 4)
    assert [float(x) for x in inner.results] == [1.0, 2.0, 3.0] * 2
    assert evaluation.metrics_by_step()[4] == {"x": 2.0}


def test_an_evaluation_of_a_few_steps(model, x):
    test_data = rh.inputs(lambda step: iter([1.0, 2.0, 3.0]))
    by_input = rh.EvaluationHook({"x": test_data}, every_n_steps=2, steps=2)
    by_feeds = rh.EvaluationHook({"x": x}, feeds(x, 1.0, 2.0, 3.0), every_n_steps=2, steps=2)
    loop([by_input, by_feeds], model.train_op, 4)
    assert by_input.last_metrics == by_feeds.last_metrics == {"x": 1.5}


def test_feeds_in_the_place_of_the_input_of_the_training(graph):
    drawn = []
    batch = rh.inputs(lambda step: iter(range(10)), name="batch")
    total = rh.Variable(0, name="total")
    train_op = rh.group(total.assign_add(batch), rh.train.get_or_create_global_step().assign_add(1))
    evaluation = rh.EvaluationHook({"batch": batch}, feeds(batch, 70, 80), every_n_steps=1)
    with rh.MonitoredSession(hooks=[evaluation]) as sess:
        for step in (1, 2, 3):
            sess.run(train_op)
            drawn.append(int(sess.run(total, hooks=False)))
            assert evaluation.metrics_by_step()[step] == {"batch": 75.0}
    assert drawn == [0, 1, 3]  # none was taken from the training


# --- When


def test_a_recovery_evaluates_again_what_it_makes_again(model, tmp_path):
    hook = rh.EvaluationHook({"loss": model.loss}, every_n_steps=2, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        for _ in range(2):
            sess.run(model.train_op)
            assert hook.metrics_by_step() == ({2: {"loss": 4.0}} if sess.global_step == 2 else {})
    assert rh.read_eval_metrics(tmp_path) == {2: {"loss": 4.0}}


# --- Apart from the training


@pytest.mark.every_engine
def test_the_training_is_the_same_as_without(model, x, scaled):
    def weights(*hooks):
        with rh.MonitoredSession(hooks=hooks) as sess:
            for _ in range(4):
                sess.run(model.train_op)
            return sess.run(model.weights, hooks=False).tolist(), sess.global_step

    hook = rh.EvaluationHook({"scaled": scaled}, feeds(x, 1.0, 2.0), every_n_steps=1)
    assert weights(hook) == weights()
    assert model.faults.drawn == 8  # an element a step


@pytest.mark.parametrize("save_steps", [1, 100])
def test_the_best_checkpoints_are_kept(model, x, tmp_path, save_steps):
    values = {1: 1.0, 2: 3.0, 3: 2.0}
    hook = rh.EvaluationHook({"x": x}, lambda step: [{x: values[step]}], every_n_steps=1)
    saver = rh.Saver(keep=[rh.KeepBest(hook.metric("x"), 1)])
    hooks = [hook, rh.CheckpointSaverHook(tmp_path, save_steps=save_steps, saver=saver)]
    loop(hooks, model.train_op, 3)
    kept = sorted(path.name for path in tmp_path.glob("model.ckpt-*"))
    assert kept == ["model.ckpt-2", "model.ckpt-3"]  # the best, and the newest


@pytest.mark.parametrize(
    ("mode", "evaluate", "save", "expected"),
    [
        ("max", 3, 5, [0, 3, 5, 6, 9, 10, 12]),  # the loss rises: each is the best so far
        ("min", 3, 5, [0, 3, 5, 10, 12]),
        ("max", 3, 3, [0, 3, 6, 9, 12]),
        ("min", 4, 2, [0, 2, 4, 6, 8, 10, 12]),
    ],
)
def test_an_evaluation_among_the_best_is_saved_whatever_the_cadence(
    mode, evaluate, save, expected, model, tmp_path, caplog
):
    class Saved(rh.CheckpointSaverListener):
        steps = ()

        def after_save(self, session, global_step_value):
            self.steps += (global_step_value,)

    saved = Saved()
    hook = rh.EvaluationHook({"loss": model.loss}, every_n_steps=evaluate)
    saver = rh.Saver(keep=[rh.KeepBest(hook.metric("loss"), mode=mode)])
    stop = rh.stop_if_no_decrease_hook(hook, "loss", 99, run_every_secs=None, run_every_steps=1)
    save_hook = rh.CheckpointSaverHook(tmp_path, save_steps=save, saver=saver, listeners=[saved])
    loop([save_hook, stop, hook], model.train_op, 12)
    assert list(saved.steps) == expected
    assert not [it for it in caplog.records if it.levelname == "WARNING"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_its_results_are_there_for_every_hook_that_acts_on_the_step(model, tmp_path, order):
    class Reader(rh.SessionRunHook):
        seen = ()

        def after_run(self, run_context, run_values):
            step = run_context.session.global_step
            if step % 5 == 0:
                self.seen += ((step, hook.metrics_by_step()[step]),)

    hook = rh.EvaluationHook({"loss": model.loss}, every_n_steps=5, output_dir=tmp_path)
    stop = rh.stop_if_higher_hook(hook, "loss", 15.0, run_every_steps=5)
    reader = Reader()
    hooks = [hook, stop, reader]
    with rh.MonitoredSession(hooks=[hooks[place] for place in order]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
    assert sess.global_step == 10
    assert reader.seen == ((5, {"loss": 10.0}), (10, {"loss": 20.0}))


# --- Hooks of its own


def test_each_evaluation_is_a_session_of_its_own_to_its_hooks(model, x):
    inner = RecordingHook()
    hook = rh.EvaluationHook({"x": x}, feeds(x, 1.0, 2.0), every_n_steps=2, hooks=[inner])
    loop([hook], model.train_op, 4)
    run = ["before_run", "after_run"]
    evaluation = ["after_create_session", *run, *run, "end"]
    assert inner.methods == ["begin", *evaluation, *evaluation]


def test_a_stop_of_its_hooks_ends_the_evaluation(model, x):
    class Stop(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

    hook = rh.EvaluationHook({"x": x}, feeds(x, 1.0, 2.0), every_n_steps=2, hooks=[Stop()])
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(4):
            sess.run(model.train_op)
        assert not sess.should_stop()
    assert hook.metrics_by_step()[4] == {"x": 1.0}


@pytest.mark.parametrize("phase", ["after_create_session", "before_run", "after_run", "end"])
def test_an_error_of_its_hooks(model, x, phase):
    class Failing(RecordingHook):
        def record(self, method):
            super().record(method)
            if method == phase:
                raise ZeroDivisionError

    inner, other = Failing("inner"), RecordingHook("other")
    hook = rh.EvaluationHook(
        {"x": x}, feeds(x, 1.0), every_n_steps=2, hooks=[inner, other], hook_name="test_set"
    )
    with pytest.raises(ZeroDivisionError) as error:
        loop([hook], model.train_op, 2)
    assert error.value.__notes__ == [
        f"in {phase} of the hook Failing",
        "in the evaluation at step 2",
        "in after_run of the hook test_set",
    ]
    last = "end" if phase == "end" else "on_exception"  # never both
    assert inner.methods[-1] == other.methods[-1] == last


# --- What it refuses


def test_metrics_that_draw_from_the_input_of_the_training(graph):
    batch = rh.inputs([1.0, 2.0, 3.0], name="batch")
    train_op = rh.group(batch, rh.train.get_or_create_global_step().assign_add(1))
    hook = rh.EvaluationHook({"batch": batch}, every_n_steps=1)
    with pytest.raises(ValueError, match="metrics .*'batch'"):
        loop([hook], train_op, 1)


@pytest.mark.every_engine
def test_metrics_that_change_the_state_of_the_training(model):
    hook = rh.EvaluationHook({"w": model.weights.assign_add(1.0)[0]}, every_n_steps=1)
    with pytest.raises(ValueError, match="metrics .*'weights'"):
        loop([hook], model.train_op, 1)


@pytest.mark.every_engine
def test_a_metric_that_is_no_number(model, x):
    hook = rh.EvaluationHook({"x": x}, feeds(x, np.zeros(3)), every_n_steps=1)
    with pytest.raises(ValueError, match="'x'"):
        loop([hook], model.train_op, 1)


def test_feeds_that_serve_one_evaluation_alone(model, x):
    batches = iter([{x: 1.0}])
    hook = rh.EvaluationHook({"x": x}, lambda step: batches, every_n_steps=1)
    with pytest.raises(RuntimeError, match="made no run") as error:
        loop([hook], model.train_op, 2)
    assert error.value.__notes__ == [
        "in the evaluation at step 2",
        "in after_run of the hook EvaluationHook",
    ]


def test_hook_that_no_session_has_says_so_when_its_metrics_are_asked_for(model, tmp_path):
    evaluation = rh.EvaluationHook({"loss": model.loss}, every_n_steps=1, output_dir=tmp_path)
    with pytest.raises(RuntimeError, match="no session has the hook"):
        evaluation.metrics_by_step()
    stop = rh.stop_if_higher_hook(evaluation, "loss", 1.0, run_every_secs=None, run_every_steps=1)
    with pytest.raises(RuntimeError, match="no session has the hook"):
        loop([stop], model.train_op, 1)
    loop([stop, evaluation], model.train_op, 1)


def test_unknown_metric_to_rank_by_is_told_before_the_first_step(model):
    evaluation = rh.EvaluationHook({"accuracy": model.loss}, every_n_steps=2, hook_name="test_set")
    message = "no metric 'acuracy' in test_set; did you mean 'accuracy'"
    with pytest.raises(ValueError, match=message):
        rh.KeepBest(evaluation.metric("acuracy"))
