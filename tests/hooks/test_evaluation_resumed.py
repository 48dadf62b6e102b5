"""Evaluations and stops: a training that is resumed goes on as one that nothing stopped."""

import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runhooks as rh


class Shuffled:
    """Numbers in an order that NumPy's shared generator draws in each epoch."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        yield from np.random.permutation(self.length).astype(float)


class Unknown:
    """Three numbers, which nobody can count beforehand."""

    def __iter__(self):
        return iter([1.0, 2.0, 3.0])


def trained(directory, data, hooks, *, epochs, stop=None):
    """The elements that a training draws from ``data``, which stops after ``stop`` steps."""
    seen = []

    def train_step(w, batch):
        seen.append(float(batch))
        return w + batch, {"loss": batch - w}

    stops = [] if stop is None else [rh.StopAtStepHook(num_steps=stop)]
    with rh.graph(train_step, w=0.0, data=data, epochs=epochs).as_default():
        rh.train.train("train_op", directory, [*hooks(), *stops])
    return seen


def test_two_stops_between_evaluations_leave_the_order_of_the_data(tmp_path):
    def run(directory, stop=None):
        np.random.seed(0)
        return trained(
            directory,
            Shuffled(4),
            lambda: [rh.EvaluationHook(lambda w, x: {"m": w + x}, Shuffled(2), every_n_epochs=2)],
            epochs=6,
            stop=stop,
        )

    undisturbed = run(tmp_path / "undisturbed")
    stopped = [it for stop in (9, 4, None) for it in run(tmp_path / "stopped", stop)]
    assert stopped == undisturbed
    assert len(undisturbed) == 24


class Interrupted:
    """Evaluates ``w``, and sends the process a SIGTERM in call ``at``."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, w, x):
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(signal.SIGTERM)
        return {"w": w}


def test_an_evaluation_that_is_repeated_has_averages(tmp_path):
    def run(directory, at=None):
        ema = rh.EmaHook("w", decay=0.9)
        evaluation = rh.EvaluationHook(Interrupted(at), [0.0] * 3, every_n_epochs=1, averages=ema)
        trained(directory, [1.0] * 3, lambda: [ema, evaluation], epochs=3)
        return evaluation.metrics_by_step()

    undisturbed = run(tmp_path / "undisturbed")
    assert list(run(tmp_path / "stopped", at=4)) == [3]
    assert run(tmp_path / "stopped") == undisturbed
    assert list(undisturbed) == [3, 6, 9]


def test_an_evaluation_that_is_repeated_draws_what_the_dropped_one_has(tmp_path):
    def run(directory, at=None):
        np.random.seed(0)
        evaluation = rh.EvaluationHook(Interrupted(at), Shuffled(3), every_n_epochs=1)
        return trained(directory, Shuffled(4), lambda: [evaluation], epochs=3)

    undisturbed = run(tmp_path / "undisturbed")
    assert run(tmp_path / "stopped", at=2) + run(tmp_path / "stopped") == undisturbed


class ShuffledByItself(Shuffled):
    """As ``Shuffled``, by a generator of its own."""

    def __init__(self, length):
        super().__init__(length)
        self.random = np.random.default_rng(0)

    def __iter__(self):
        yield from self.random.permutation(self.length).astype(float)


def test_an_evaluation_that_is_repeated_goes_on_with_the_order_of_the_one_before(tmp_path):
    def run(directory, at=None):
        interrupted, calls = Interrupted(at), []

        def test_step(w, x):
            calls.append(float(x))
            return interrupted(w, x)

        evaluation = rh.EvaluationHook(test_step, ShuffledByItself(6), every_n_epochs=1, steps=2)
        trained(directory, [1.0] * 3, lambda: [evaluation], epochs=4)
        return calls

    undisturbed = run(tmp_path / "undisturbed")
    before = run(tmp_path / "stopped", at=3)
    assert before[:2] + run(tmp_path / "stopped") == undisturbed
    assert len(undisturbed) == 8


@pytest.mark.parametrize("comes_in", ["step", "evaluation"])
def test_after_a_signal_no_evaluation_delays_the_save_of_the_step(comes_in, tmp_path):
    calls = []

    class Batches:
        def __len__(self):
            return 3

        def __iter__(self):
            yield from [1.0, 2.0]
            if comes_in == "step":
                signal.raise_signal(signal.SIGTERM)
            yield 3.0

    def evaluation(name):
        def test_step(w, x):
            calls.append(name)
            if calls == ["a", "a"]:
                signal.raise_signal(signal.SIGTERM)
            return {"w": w}

        return rh.EvaluationHook(test_step, [0.0] * 4, every_n_epochs=1, hook_name=name)

    trained(tmp_path, Batches(), lambda: [evaluation("a"), evaluation("b")], epochs=2)
    assert calls == ([] if comes_in == "step" else ["a", "a"])
    assert rh.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3")


def test_summaries_of_an_evaluation_that_is_repeated_are_written_once(tmp_path):
    def run(at=None):
        test = rh.EvaluationHook(
            Interrupted(at),
            [0.0] * 3,
            every_n_epochs=1,
            summary_op=lambda test: rh.summary.scalar("shown", test["w"]),
            output_dir=tmp_path / "test",
        )
        trained(tmp_path, [1.0] * 3, lambda: [test], epochs=3)

    run(at=5)
    run()
    points = EventAccumulator(str(tmp_path / "test")).Reload().Scalars("shown")
    assert [point.step for point in points] == [3, 6, 9]


def test_what_a_repeated_evaluation_has_changed_is_saved_at_once(tmp_path):
    """Although the restart ends before its first step."""

    def run(directory, at=None, steps=None):
        test_step, seen = Interrupted(at), []

        def train_step(w, rate, batch):
            seen.append(float(batch))
            return w + rate * batch, rate, {"loss": w}

        with rh.graph(train_step, w=0.0, rate=1.0, data=Shuffled(4), epochs=3).as_default():
            evaluation = rh.EvaluationHook(test_step, Shuffled(2), every_n_epochs=1)
            metric = evaluation.metric("w")
            plateau = rh.ReduceOnPlateauHook(metric, "rate", mode="min", patience=0, factor=0.5)
            with rh.MonitoredTrainingSession(
                checkpoint_dir=directory, hooks=[evaluation, plateau]
            ) as session:
                while not session.should_stop() and steps is None:
                    session.run("train_op")
        return seen, test_step.calls

    np.random.seed(0)
    undisturbed, _ = run(tmp_path / "undisturbed")
    np.random.seed(0)
    before, _ = run(tmp_path / "stopped", at=3)
    assert run(tmp_path / "stopped", steps=0) == ([], 2)
    assert rh.load(tmp_path / "stopped", "rate") == 0.5
    assert run(tmp_path / "stopped", steps=0) == ([], 0)
    after, _ = run(tmp_path / "stopped")
    assert before + after == undisturbed
    assert rh.load(tmp_path / "stopped") == rh.load(tmp_path / "undisturbed")


def scored(directory, make_stop, last=100, between=0.0):
    """Train with a score every 10 steps, and at the end; it is ``between`` between these steps."""

    def test_step(w, x):
        return {"score": {10: 0.1, 20: 0.3, 30: 0.2, 40: 0.4}.get(w, between if w % 10 else 0.2)}

    with rh.graph(lambda w: w + 1, w=0).as_default():
        evaluation = rh.EvaluationHook(
            test_step, [0.0], trigger=rh.Trigger(every_steps=10, at_end=True)
        )
        stop = make_stop(evaluation.metric("score"))
        hooks = [evaluation, stop, rh.StopAtStepHook(last_step=last)]
        with rh.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
            restored = evaluation.metrics_by_step()
            while not session.should_stop():
                session.run("train_op")
    return session.stop_reason, restored, evaluation.metrics_by_step()


RULES = {
    "patience": (lambda it: rh.stop_if_no_increase_hook(it, patience=2), 0.0),
    "steps": (lambda it: rh.stop_if_no_increase_hook(it, max_steps_without_increase=30), 0.9),
    "threshold": (lambda it: rh.stop_if_higher_hook(it, threshold=0.8), 0.9),
}


@pytest.mark.parametrize("rule", RULES)
def test_evaluations_at_the_ends_of_sessions_do_not_stop_the_resumed_one(rule, tmp_path):
    make_stop, between = RULES[rule]
    why, _, undisturbed = scored(tmp_path / "undisturbed", make_stop, between=between)
    for last in (22, 24, 26, 38):
        scored(tmp_path / "stopped", make_stop, last=last, between=between)
    assert scored(tmp_path / "stopped", make_stop, between=between)[::2] == (why, undisturbed)


def test_an_evaluation_at_the_end_is_known_until_the_training_goes_on(tmp_path):
    make_stop, _ = RULES["patience"]
    found = {10: {"score": 0.1}, 20: {"score": 0.3}, 22: {"score": 0.0}}
    for restored in ({}, found):
        assert scored(tmp_path, make_stop, last=22)[1:] == (restored, found)
    _, restored, now = scored(tmp_path, make_stop, last=30)
    assert restored == found
    assert list(now) == [10, 20, 30]


HOOKS = {
    "call": lambda: rh.CallHook(lambda epoch: None, ["epoch"], every_n_epochs=1),
    "evaluation": lambda: rh.EvaluationHook(lambda w, x: {"m": w}, [1.0], every_n_epochs=1),
    "mean": lambda: rh.CallHook(lambda mean: None, [rh.epoch_mean("loss")], every_n_epochs=1),
}


class Lost(rh.SessionRunHook):
    """Loses the session after step 7, once."""

    is_lost = False

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == 7 and not self.is_lost:
            self.is_lost = True
            raise rh.errors.UnavailableError("gone")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_lost_session_is_replaced_although_nobody_knows_how_long_epochs_are(hook, tmp_path):
    with rh.graph(
        lambda w, batch: (w + batch, {"loss": batch}), w=0.0, data=Unknown(), epochs=4
    ).as_default():
        policy = rh.RecoveryPolicy(first_wait_secs=0)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            hooks=[HOOKS[hook](), Lost()],
            save_checkpoint_steps=1,
            recovery=policy,
        ) as session:
            while not session.should_stop():
                session.run("train_op")
    assert (session.global_step, session.recoveries) == (12, 1)
    assert rh.load(tmp_path, "w") == 24
