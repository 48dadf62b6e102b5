import itertools
import math
import random
import signal

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook, read_events
from tests.graph.sources import uniform


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
    assert evaluation.metrics_by_step()[1] == {"x": 2.0}


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


@pytest.mark.parametrize("last", [2, 3, 4])
def test_a_resumed_run_has_the_metrics_of_the_last_evaluation(model, tmp_path, last):
    def resume(last_step):
        hook = rh.EvaluationHook({"loss": model.loss}, every_n_steps=2)
        seen = []

        class Reader(rh.SessionRunHook):
            def after_create_session(self, session, coord):
                seen.append(dict(hook.last_metrics))

        rh.train.train(model.train_op, tmp_path, [hook, Reader()], max_steps=last_step)
        return [*seen, hook.last_metrics]

    at = {2: {"loss": 4.0}, 4: {"loss": 8.0}}
    before = at[last // 2 * 2]
    assert resume(last) == [{}, before]
    assert resume(last) == [before, before]  # it makes no step
    assert resume(5) == [before, at[4]]


def test_the_best_checkpoints_are_kept(model, x, tmp_path):
    values = iter([1.0, 3.0, 2.0])
    hook = rh.EvaluationHook({"x": x}, lambda step: [{x: next(values)}], every_n_steps=1)
    saver = rh.Saver(keep=[rh.KeepBest(hook.metric("x")), rh.KeepLast(1)])
    hooks = [hook, rh.CheckpointSaverHook(tmp_path, save_steps=100, saver=saver)]
    loop(hooks, model.train_op, 3)
    kept = sorted(path.name for path in tmp_path.glob("model.ckpt-*"))
    assert kept == ["model.ckpt-2", "model.ckpt-3"]  # the best, and the newest: the end
    assert rh.best_checkpoint(tmp_path, "x").metrics == {"x": 3.0}


class Saved(rh.CheckpointSaverListener):
    """The steps of the checkpoints."""

    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        self.steps.append(global_step_value)


@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, [1, 2, 4]), ({"mode": "min"}, [1, 3]), ({"n": 2}, [1, 2, 4])],
)
def test_an_evaluation_that_is_among_the_best_is_saved(model, x, tmp_path, options, steps):
    values = iter([2.0, 3.0, 1.0, 5.0, math.nan, 2.0])
    hook = rh.EvaluationHook({"x": x}, lambda step: [{x: next(values)}], every_n_steps=1)
    saver = rh.Saver(keep=[rh.KeepBest(hook.metric("x"), **options), rh.KeepLast(99)])
    saved = Saved()
    saving = rh.CheckpointSaverHook(tmp_path, save_steps=100, saver=saver, listeners=[saved])
    loop([hook, saving], model.train_op, 6)
    assert saved.steps == [0, *steps, 6]  # the start, and the end


@pytest.mark.parametrize(
    ("evaluate", "save", "steps"),
    [
        (3, 5, [0, 3, 5, 6, 9, 10, 12]),  # the loss rises: each evaluation is the best so far
        (3, 3, [0, 3, 6, 9, 12]),
        (4, 2, [0, 2, 4, 6, 8, 10, 12]),
        (2, 4, [0, 2, 4, 6, 8, 10, 12]),
    ],
)
def test_a_step_that_is_due_and_among_the_best_is_saved_once(
    evaluate, save, steps, model, tmp_path, caplog
):
    hook = rh.EvaluationHook({"loss": model.loss}, every_n_steps=evaluate)
    saver = rh.Saver(keep=[rh.KeepBest(hook.metric("loss"))])
    stop = rh.stop_if_no_decrease_hook(hook, "loss", 99, run_every_secs=None, run_every_steps=1)
    saved = Saved()
    saving = rh.CheckpointSaverHook(tmp_path, save_steps=save, saver=saver, listeners=[saved])
    loop([saving, stop, hook], model.train_op, 12)
    assert saved.steps == steps
    assert not [it for it in caplog.records if it.levelname == "WARNING"]


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize(
    ("mode", "steps", "best"),
    [("max", [0, 3, 5, 6, 9, 10, 10], 10), ("min", [0, 3, 5, 10], 3)],  # the loss rises
)
def test_an_evaluation_at_the_end_that_is_the_best_replaces_the_checkpoint_of_its_step(
    mode, steps, best, is_asynchronous, model, tmp_path
):
    at_end = rh.Trigger(every_steps=3, at_end=True)
    hook = rh.EvaluationHook({"loss": model.loss}, trigger=at_end)
    keep = [rh.KeepLast(1), rh.KeepBest(hook.metric("loss"), mode=mode)]
    saver = rh.Saver(keep=keep, asynchronous=is_asynchronous)
    saved = Saved()
    saving = rh.CheckpointSaverHook(tmp_path, save_steps=5, saver=saver, listeners=[saved])
    loop([hook, saving], model.train_op, 10)
    assert saved.steps == steps
    assert rh.best_checkpoint(tmp_path, "loss").step == best
    kept = {path.name for path in tmp_path.glob("model.ckpt-*")}
    assert kept == {f"model.ckpt-{best}", "model.ckpt-10"}


def test_an_evaluation_that_is_repeated_and_is_the_best_is_saved_once(tmp_path):
    values = {2: 1.0, 4: 9.0, 6: 3.0}

    def go_on(last, *, stop_at=None):
        def test_step(w, x):
            if w == stop_at:
                session.request_stop("now")
            return {"value": values[int(w)]}

        saved = Saved()
        with rh.graph(lambda w: (w + 1, {"loss": w}), w=0.0).as_default():
            test = rh.EvaluationHook(test_step, [np.ones(1)] * 2, every_n_steps=2)
            keep = [rh.KeepLast(1), rh.KeepBest(test.metric("value"))]
            saving = rh.CheckpointSaverHook(
                tmp_path, save_steps=100, saver=rh.Saver(keep=keep), listeners=[saved]
            )
            hooks = [test, saving, rh.StopAtStepHook(last_step=last)]
            session = rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path, save_checkpoint_steps=None, hooks=hooks
            )
            with session:
                while not session.should_stop():
                    session.run("train_op")
        return saved.steps

    assert go_on(6, stop_at=4) == [0, 2, 4]
    assert go_on(4) == [4]  # with its metric
    assert go_on(4) == []
    assert go_on(6) == [6]
    assert rh.best_checkpoint(tmp_path, "value").step == 4


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


@pytest.mark.every_engine
@pytest.mark.parametrize("metric", [5, ("x", "x"), ["x", "x", "x"]])
def test_a_metric_that_is_nothing_to_fetch_is_named(model, x, metric):
    hook = rh.EvaluationHook({"x": x, "bad": metric}, feeds(x, 1.0), every_n_steps=1)
    with pytest.raises(TypeError, match="the metric 'bad' must be a tensor, its name, or on"):
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
    evaluation = rh.EvaluationHook({"accuracy": model.loss}, every_n_steps=2)
    with pytest.raises(ValueError, match="there is no metric .*did you mean 'accuracy'"):
        rh.KeepBest(evaluation.metric("acuracy"))


def ways_to_act_on(evaluation, name, folder):
    """Hooks that act on a metric, by how they get it."""
    saver = rh.Saver(keep=[rh.KeepBest(evaluation.metric(name))])
    return {
        "metric": [rh.stop_if_no_decrease_hook(evaluation.metric(name), patience=1)],
        "hook": [rh.stop_if_higher_hook(evaluation, name, 5.0)],
        "plateau": [rh.ReduceOnPlateauHook(evaluation.metric(name), "w")],
        "best": [rh.CheckpointSaverHook(folder, save_steps=100, saver=saver)],
    }


WAYS = ["metric", "hook", "plateau", "best"]


@pytest.mark.every_engine
@pytest.mark.parametrize("way", WAYS)
def test_a_misspelt_metric_ends_the_training_at_once(way, trained, engine, tmp_path):
    test = rh.EvaluationHook(
        lambda w, x, y: {"error": (w * x).mean(), "each": x}, BATCHES, every_n_epochs=1
    )
    hooks = ways_to_act_on(test, "eror", tmp_path)[way]
    names = r"which has \['error'\]; did you mean 'error'"
    with pytest.raises(ValueError, match=f"no metric 'eror' in EvaluationHook, {names}") as error:
        train(test, *hooks)
    # JAX traces the test step before the first step; the others call it in the first evaluation.
    place = "begin" if engine == "jax" else "after_run"
    assert error.value.__notes__[-1] == f"in {place} of the hook EvaluationHook"


def test_a_resumed_run_knows_a_misspelt_metric_too(trained, tmp_path):
    def go_on(last, name):
        test = rh.EvaluationHook(lambda w, x, y: {"error": w}, BATCHES, every_n_epochs=1)
        stop = rh.stop_if_no_decrease_hook(test.metric(name), patience=5)
        rh.train.train("train_op", tmp_path, [test, stop], max_steps=last)

    go_on(4, "error")
    with pytest.raises(ValueError, match="no metric 'eror'"):
        go_on(8, "eror")


def test_a_value_that_is_no_number_is_no_metric_to_act_on(trained):
    test = rh.EvaluationHook(lambda w, x, y: {"error": w, "each": x}, BATCHES, every_n_epochs=1)
    with pytest.raises(ValueError, match=r"no metric 'each' .* has \['error'\]"):
        train(test, rh.stop_if_lower_hook(test.metric("each"), threshold=0.0))


# --- A test step


@pytest.fixture
def trained(engine):
    """A graph that trains ``w`` on one number a step, four an epoch; the default graph."""

    def train_step(w, x):
        return w + x, {"loss": x}

    data = [np.float32(it) for it in (1, 2, 3, 4)]
    graph = rh.graph(train_step, w=np.float32(0), data=data, epochs=2, engine=engine)
    with graph.as_default():
        yield graph


BATCHES = [
    (np.ones(3, np.float32), np.zeros(3, np.float32)),
    (np.ones(1, np.float32), np.full(1, 4, np.float32)),  # the last one is smaller
]


def train(*hooks):
    with rh.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run("train_op")


@pytest.mark.every_engine
def test_a_test_step_gets_states_by_name_and_means_go_by_examples(trained, tmp_path):
    def test_step(x, w, y, scale=1):  # the data fill those that are left, in order
        difference = w * x - y * scale
        return {"error": difference.mean(), "w": w, "difference": difference}

    test = rh.EvaluationHook(
        test_step,
        BATCHES,
        every_n_epochs=1,
        output_dir=tmp_path,
        summary_op=lambda test: rh.summary.histogram("shown", test["difference"]),
    )
    train(test)
    # w is 10 and 20 after each epoch of four; the errors of the batches are w and w - 4.
    assert test.metrics_by_step() == {4: {"error": 9.0, "w": 10.0}, 8: {"error": 19.0, "w": 20.0}}
    read = rh.events.read(tmp_path)["."]
    assert read.scalars["error"].values.tolist() == [9.0, 19.0]
    assert read.tags.keys() == {"error", "w", "shown"}
    assert read.histograms["shown"].steps.tolist() == [4, 8]
    assert trained.get_collection(rh.GraphKeys.SUMMARIES) == []  # no other hook writes it too


@pytest.mark.every_engine
def test_its_outputs_cannot_be_fetched_in_a_step(trained):
    test = rh.EvaluationHook(lambda w, x, y: {"w": w}, BATCHES, every_n_epochs=1)
    shown = rh.CallHook(print, [test["w"]], every_n_epochs=1)
    with pytest.raises(ValueError, match="must not draw from '.*data', the data of an Eval"):
        train(test, shown)


def test_a_step_that_is_refused_has_drawn_from_no_input(caplog):
    graph = rh.graph(lambda w, x: (w + x, {"x": x}), w=0.0, data=lambda step: iter([1.0, 2.0]))
    with graph.as_default():
        tested = rh.EvaluationHook(lambda w, x: {"w": w * x}, [1.0], every_n_steps=9)["w"]
        with rh.MonitoredSession() as session:
            with pytest.raises(ValueError, match="must not draw from"):
                session.run(["train_op", tested])
            assert session.run("x") == 1.0
    assert "goes by the global step" not in caplog.text


@pytest.mark.every_engine
def test_its_step_and_keys(trained, engine):
    def test_step(step, key, x, y):
        return {"step": step, "drawn": uniform(engine, key)[0]}

    class Reader(rh.SessionRunHook):
        def __init__(self):
            self.seen = []

        def begin(self):
            self.asked = rh.SessionRunArgs([test["step"], test["drawn"]])

        def before_run(self, run_context):
            return self.asked

        def after_run(self, run_context, run_values):
            self.seen.append([float(it) for it in run_values.results])

    reader = Reader()
    test = rh.EvaluationHook(test_step, BATCHES, every_n_epochs=1, hooks=[reader])
    train(test)
    steps, drawn = zip(*reader.seen, strict=True)
    assert steps == (4, 4, 8, 8)
    assert drawn[:2] == drawn[2:]  # a key for each batch, the same in every evaluation
    assert drawn[0] != drawn[1]


@pytest.mark.every_engine
def test_results_without_names(trained):
    unnamed = rh.EvaluationHook(lambda w, x, y: (w, x.mean()), BATCHES, every_n_epochs=1)
    with pytest.raises(ValueError, match=r"outputs=\['metric_1', 'metric_2'\]"):
        train(unnamed)


@pytest.mark.every_engine
def test_names_for_its_results(trained):
    def test_step(w, x, y):
        return w, x.mean()

    test = rh.EvaluationHook(test_step, BATCHES, every_n_epochs=1, outputs=["w", "x"])
    train(test)
    assert test.last_metrics == {"w": 20.0, "x": 1.0}


@pytest.mark.every_engine
def test_a_result_of_none_is_refused_by_its_name(trained):
    def test_step(w, x, y):
        return None, x.mean()

    test = rh.EvaluationHook(test_step, BATCHES, every_n_epochs=1, outputs=["skipped", "x"])
    with pytest.raises(TypeError, match="'skipped' must be a real number, got None"):
        train(test)


@pytest.mark.every_engine
@pytest.mark.parametrize("dropped", [1, 2])
def test_metrics_of_a_dropped_evaluation_are_nan_to_hooks_of_the_step_which_is_saved(
    dropped, trained, tmp_path
):
    def go_on(stops):
        def batches(step):
            yield BATCHES[0]
            if stops and step == 4 * dropped:
                signal.raise_signal(signal.SIGTERM)
            yield BATCHES[1]

        def note(epoch):
            noted[epoch] = [test.last_metrics["w"], metric.last()]

        noted = {}
        test = rh.EvaluationHook(lambda w, x, y: {"w": w}, batches, every_n_epochs=1)
        metric = test.metric("w")
        note_each = rh.CallHook(note, "epoch", every_n_epochs=1)
        rh.train.train("train_op", tmp_path, [note_each, test])
        return noted, test.metrics_by_step(), dict(test.last_metrics)

    found = {1: [10.0] * 2, 2: [20.0] * 2}
    by_step = {4: {"w": 10.0}, 8: {"w": 20.0}}
    before = {epoch: it for epoch, it in found.items() if epoch < dropped}
    noted, *metrics = go_on(stops=True)
    assert noted == {**before, dropped: pytest.approx([math.nan] * 2, nan_ok=True)}
    assert metrics == [
        {4 * epoch: by_step[4 * epoch] for epoch in before},
        pytest.approx({"w": math.nan}, nan_ok=True),
    ]
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / f"model.ckpt-{4 * dropped}")
    noted, *metrics = go_on(stops=False)
    assert noted == {epoch: it for epoch, it in found.items() if epoch > dropped}
    assert metrics == [by_step, {"w": 20.0}]


@pytest.mark.parametrize("is_first", [True, False])
def test_no_name_is_unknown_to_the_metrics_of_a_dropped_evaluation(is_first):
    def test_step(w, x):
        if is_first or w == 2:
            session.request_stop()
        return {"w": w}

    with rh.graph(lambda w: (w + 1, {"loss": w}), w=0.0).as_default():
        test = rh.EvaluationHook(test_step, [np.ones(1)] * 2, every_n_steps=1)
        with rh.MonitoredSession(hooks=[test]) as session:
            while not session.should_stop():
                session.run("train_op")
    assert math.isnan(test.last_metrics["w"])
    assert list(test.last_metrics) == ([] if is_first else ["w"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((5, BATCHES), TypeError, "test_step must be a function"),
        ((len, None), TypeError, "data must be given"),
        ((len, iter(BATCHES)), TypeError, "data must be iterable again"),
        (({}, None), ValueError, "test_step must be a function, or one tensor or more"),
    ],
)
def test_what_cannot_be_evaluated(arguments, error, message):
    with pytest.raises(error, match=message):
        rh.EvaluationHook(*arguments, every_n_steps=1)


def test_a_test_step_of_pytorch_leaves_the_training_as_it_was():
    torch = pytest.importorskip("torch")

    def trained(hooks):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        layers = torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def train_step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        data = [torch.randn(4, 2) for _ in range(3)]
        objects = {"model": model, "optimizer": optimizer}
        graph = rh.torch.graph(train_step, ["loss"], data=data, epochs=2, **objects)
        with graph.as_default():
            train(*hooks(data))
        assert all(it.training for it in model.modules())
        return [
            *[it.tolist() for it in model.state_dict().values()],
            *[torch.rand(3).tolist(), np.random.random(), random.random()],
        ]

    def test_step(model, x):
        assert not any(it.training for it in model.modules())
        assert not torch.is_grad_enabled()
        drawn = torch.rand(()) + np.random.random() + random.random()
        return {"loss": model(x).square().mean(), "drawn": drawn}

    evaluation = []

    def hooks(data):
        evaluation.append(rh.EvaluationHook(test_step, data, every_n_steps=2))
        return evaluation

    assert trained(hooks) == trained(lambda data: [])
    assert list(evaluation[0].metrics_by_step()) == [2, 4, 6]
