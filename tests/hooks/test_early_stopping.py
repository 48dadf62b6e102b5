import logging
import math

import pytest

import runhooks as rh


@pytest.fixture
def messages(caplog):
    caplog.set_level("INFO", "runhooks")
    asks = "asks to stop at step 1: "
    return lambda: [line.partition(asks)[2] for line in caplog.messages if asks in line]


@pytest.fixture
def warnings(caplog):
    return lambda: [r.message for r in caplog.records if r.levelno == logging.WARNING]


@pytest.fixture
def write(tmp_path):
    """Writes metrics as an evaluation does: ``write(10, loss=0.5)``; a new file if ``new``."""
    writers = []

    def write(step, *, new=False, **metrics):
        if new:
            writers[-1].close()
        if new or not writers:
            writers.append(rh.summary.FileWriter(tmp_path / "eval"))
        values = [rh.summary.scalar_value(tag, value) for tag, value in metrics.items()]
        writers[-1].add_summary(rh.summary.Summary(values), step)
        writers[-1].flush()

    yield write
    for writer in writers:
        writer.close()


@pytest.fixture
def eval_dir(tmp_path):
    return tmp_path / "eval"


@pytest.fixture
def stops(model, eval_dir):
    """How many steps of ``steps`` a hook lets a loop make; it is made to look at every step."""

    def stops(make, *args, steps=3, **kwargs):
        hook = make(None, *args, eval_dir, run_every_secs=None, run_every_steps=1, **kwargs)
        with rh.MonitoredSession(hooks=[hook]) as sess:
            made = 0
            while not sess.should_stop() and made < steps:
                sess.run(model.train_op)
                made += 1
        return made

    return stops


# --- Reading


def test_metrics_by_step(write, eval_dir):
    write(20, loss=0.5, accuracy=0.25)
    write(10, loss=0.75)
    write(20, loss=0.25)  # the last value of a step counts
    metrics = rh.read_eval_metrics(eval_dir)
    assert list(metrics.items()) == [(10, {"loss": 0.75}), (20, {"loss": 0.25, "accuracy": 0.25})]


def test_a_file_that_is_gone_when_it_is_read(write, eval_dir):
    write(10, loss=0.5)
    (eval_dir / "events.out.tfevents.1").symlink_to("nowhere")
    assert rh.read_eval_metrics(eval_dir) == {10: {"loss": 0.5}}


def test_steps_that_are_made_again_count_once(write, eval_dir):
    write(10, loss=0.5)
    write(20, loss=0.25)
    with rh.summary.FileWriter(eval_dir) as writer:  # of a session resumed at step 15
        status = rh.summary.SessionStatus
        writer.add_session_log(rh.summary.SessionLog(status.START), 16)
        writer.add_session_log(rh.summary.SessionLog(status.CHECKPOINT), 5)
    assert rh.read_eval_metrics(eval_dir) == {10: {"loss": 0.5}}


def test_what_is_damaged_is_skipped(write, eval_dir, warnings):
    write(10, loss=0.5)
    write(20, loss=0.25)
    (file,) = eval_dir.iterdir()
    content = bytearray(file.read_bytes())
    content[-6] ^= 1
    file.write_bytes(content)
    write(30, loss=0.125)
    assert rh.read_eval_metrics(eval_dir) == {10: {"loss": 0.5}, 30: {"loss": 0.125}}
    (warning,) = warnings()
    assert str(file) in warning


# --- Thresholds


@pytest.mark.parametrize(
    ("make", "word", "values", "stops_at"),
    [
        (rh.stop_if_higher_hook, "higher", [0.25, 0.5, 0.75], 0.75),
        (rh.stop_if_lower_hook, "lower", [0.75, 0.5, 0.25], 0.25),
    ],
)
def test_a_threshold(stops, write, messages, make, word, values, stops_at):
    for step, value in zip([10, 20], values, strict=False):
        write(step, score=value)
    assert stops(make, "score", 0.5) == 3  # one that is reached is not crossed
    assert messages() == []
    write(30, score=values[2])
    assert stops(make, "score", 0.5) == 1
    assert messages() == [
        f"the metric 'score' is {stops_at} at step 30, {word} than the threshold 0.5",
    ]


def test_a_nan_crosses_no_threshold_and_is_warned_of_once(stops, write, warnings):
    write(10, score=math.nan)
    write(20, score=math.nan)
    assert stops(rh.stop_if_higher_hook, "score", 0.5) == 3
    (warning,) = warnings()
    assert warning.startswith("the metric 'score' is NaN at step 10")


def test_an_unknown_metric_is_warned_of_once(stops, write, warnings, eval_dir):
    assert stops(rh.stop_if_higher_hook, "acuracy", 0.5) == 3
    assert warnings() == []  # there has been no evaluation
    write(10, accuracy=1.0, loss=0.5)
    assert stops(rh.stop_if_higher_hook, "acuracy", 0.5) == 3
    (warning,) = warnings()
    for part in ("'acuracy'", str(eval_dir), "did you mean 'accuracy'", "['accuracy', 'loss']"):
        assert part in warning


# --- No improvement


@pytest.mark.parametrize(
    ("make", "word", "sign"),
    [
        (rh.stop_if_no_increase_hook, "increase", 1),
        (rh.stop_if_no_decrease_hook, "decrease", -1),
    ],
)
def test_no_improvement(stops, write, messages, make, word, sign):
    for step, value in [(10, 0.25), (20, 0.5), (30, 0.375), (40, 0.75), (50, 0.75)]:
        write(step, score=sign * value)
    assert stops(make, "score", 20) == 3
    write(70, score=sign * 0.75)  # as good is not better
    assert stops(make, "score", 20) == 1
    (message,) = messages()
    assert f"no {word} for 30 steps, and 20 are allowed" in message
    value = sign * 0.75
    assert message.endswith(f"it is {value} at step 70, and was {value} at step 40")


def test_a_nan_is_never_the_best(stops, write):
    # Held for the best, it would never be beaten, and a loop that improves would be stopped.
    for step, value in [(10, math.nan), (20, 0.5), (30, 0.25), (40, 0.125)]:
        write(step, loss=value)
    assert stops(rh.stop_if_no_decrease_hook, "loss", 20) == 3


def test_steps_with_nan_are_steps_without_improvement(stops, write, messages):
    write(10, loss=0.5)
    write(20, loss=math.nan)
    assert stops(rh.stop_if_no_decrease_hook, "loss", 20) == 3
    write(30, loss=math.nan)
    assert stops(rh.stop_if_no_decrease_hook, "loss", 20) == 1
    (message,) = messages()
    assert "it is nan at step 30, and was 0.5 at step 10 (2 values" in message


# --- When it looks, and where


def test_a_record_that_is_still_being_written_is_read_later(model, write, eval_dir):
    write(1, score=0.25)
    write(2, score=0.75)
    (file,) = eval_dir.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    hook = rh.stop_if_higher_hook(None, "score", 0.5, eval_dir, 0, None, 1)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        file.write_bytes(whole[:-1])
        sess.run(model.train_op)
        assert not sess.should_stop()
        file.write_bytes(whole)
        sess.run(model.train_op)
        assert sess.should_stop()


def test_a_function_that_says_why(model):
    hook = rh.make_early_stopping_hook(None, lambda: "enough", run_every_steps=1)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        assert sess.stop_reason == "EarlyStoppingHook (enough)"


# --- A metric of the loop itself


def until_no_increase(build_model, checkpoint_dir, *, most=9, **cadence):
    """Train with an evaluation every two steps, whose metric no longer increases from step 4 on."""
    with rh.Graph().as_default():
        model = build_model()
        score = rh.call(lambda w: min(w.sum(), 8.0), model.weights, name="score")
        evaluation = rh.EvaluationHook({"score": score}, every_n_steps=2)
        metric = evaluation.metric("score")
        early = rh.stop_if_no_increase_hook(metric, max_steps_without_increase=2, **cadence)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir, hooks=[early, evaluation]
        ) as sess:
            while not sess.should_stop() and sess.global_step < most:
                sess.run(model.train_op)
        return sess, metric


def test_a_metric_stops_the_loop_at_the_step_that_evaluates_it(build_model, caplog):
    caplog.set_level("INFO", "runhooks")
    sess, metric = until_no_increase(build_model, None)
    assert sess.global_step == 6
    assert metric.by_step() == {2: 4.0, 4: 8.0, 6: 8.0}
    why = "the metric 'score' has had no increase for 2 steps, and 2 are allowed: it is 8 at step 6"
    assert sess.stop_reason.startswith(f"stop_if_no_increase_hook(score) ({why}")
    assert any(line.startswith("the session has ended at step 6") for line in caplog.messages)


@pytest.mark.parametrize("most", [3, 4, 5])
def test_a_resumed_run_stops_where_an_undisturbed_one_does(build_model, tmp_path, most):
    until_no_increase(build_model, tmp_path, most=most)
    sess, _ = until_no_increase(build_model, tmp_path)
    assert sess.global_step == 6
    sess, _ = until_no_increase(build_model, tmp_path)
    assert sess.global_step == 6  # it has nothing left to do
    why = "the metric 'score' has had no increase for 2 steps"
    assert sess.stop_reason.startswith(f"stop_if_no_increase_hook(score) ({why}")


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (rh.stop_if_no_increase_hook, "max_steps_without_increase"),
        (rh.stop_if_no_decrease_hook, "max_steps_without_decrease"),
        (rh.stop_if_higher_hook, "threshold"),
        (rh.stop_if_lower_hook, "threshold"),
    ],
)
def test_a_limit_in_the_place_of_the_name_is_told_how_to_write_it(model, make, limit):
    metric = rh.EvaluationHook({"score": model.loss}, every_n_steps=1).metric("score")
    with pytest.raises(ValueError, match=f"got 100: write {limit}=100"):
        make(metric, 100)


@pytest.mark.parametrize("estimator", ["ll", None])
def test_what_has_no_evaluations_is_told_with_what_to_give(estimator):
    with pytest.raises(ValueError, match=r"rh\.EvaluationHook.*hook\.metric\(name\).*eval_dir"):
        rh.stop_if_no_increase_hook(estimator, "ll", 10)
    if estimator is not None:
        with pytest.raises(TypeError, match="estimator must be None"):
            rh.make_early_stopping_hook(estimator, lambda: True)


@pytest.mark.parametrize(("patience", "last"), [(0, 2), (1, 5), (2, None)])
def test_patience_counts_evaluations_in_a_row_that_are_no_better(model, patience, last):
    values = iter([3.0, 3.0, 4.0, 4.0, math.nan, 5.0])
    found = rh.call(lambda: next(values), name="found")
    evaluation = rh.EvaluationHook({"x": found}, every_n_steps=1)
    stop = rh.stop_if_no_increase_hook(evaluation.metric("x"), patience=patience)
    with rh.MonitoredSession(hooks=[evaluation, stop]) as session:
        while not session.should_stop() and session.global_step < 6:
            session.run(model.train_op)
        reason = session.stop_reason
    assert session.global_step == (last or 6)
    assert last is None or f"{patience + 1} evaluations, and {patience} are allowed" in reason


def test_patience_or_steps_and_not_both():
    for given in ({}, {"patience": 1, "max_steps_without_decrease": 2}):
        with pytest.raises(ValueError, match="max_steps_without_decrease and patience"):
            rh.stop_if_no_decrease_hook(None, "loss", eval_dir="eval", **given)
