"""``session.iteration()``: several runs are a whole, or not at all: saved, resumed and stopped."""

import contextlib
import itertools
import signal
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from tests.session import iteration_program
from tests.session.iteration_program import ITERATIONS, PASSES, PLAYED

PROGRAM = Path(iteration_program.__file__)
RUNS = PLAYED + PASSES


@pytest.fixture
def run(plain_launcher, tmp_path):
    """Runs the program in a process of its own; returns its status and what it has printed."""

    def run(folder="run", **arguments):
        return plain_launcher.outcome(tmp_path, PROGRAM, folder=tmp_path / folder, **arguments)

    return run


@pytest.mark.parametrize("save", [1, 2, 3, PASSES, 7])
def test_killed_in_mid_iteration_it_ends_in_the_bits_of_an_undisturbed_one(save, run):
    _, (_, weights) = run("undisturbed", save=save)
    for kill_at in (1, PLAYED + 2, RUNS, RUNS + 1, 2 * RUNS + PLAYED + 3):
        assert run(save=save, kill_at=kill_at)[0] == -signal.SIGKILL
    assert run(save=save)[1][1] == weights


@pytest.mark.parametrize("kill_at", range(1, 2 * RUNS + 1))
def test_killed_in_any_run(kill_at, run):
    _, (_, weights) = run("undisturbed", save=1)
    assert run(save=1, kill_at=kill_at)[0] == -signal.SIGKILL
    made = ITERATIONS - (kill_at - 1) // RUNS
    # A checkpoint is saved in the last run of an iteration's block, or when it is left.
    status, (resumed, found) = run(save=1)
    assert (status, found) == (0, weights)
    assert resumed == made


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("sent", [1, PLAYED, PLAYED + 1, RUNS - 1])
def test_a_signal_waits_for_the_end_of_the_iteration(sent, is_asked, run):
    _, (_, weights) = run("undisturbed", save=3)
    status, (made, _) = run(save=3, sent=sent, is_asked=is_asked)
    # A loop that does not ask may have decided on one more.
    assert (status, made) == (0, 1 if is_asked else 2)
    assert run(save=3)[1] == [ITERATIONS - made, weights]


def count_step(total, element):
    return total + 1, {"seen": total + element}


def steps_in(folder):
    return sorted(int(path.name.rpartition("-")[2]) for path in Path(folder).glob("model.ckpt-*"))


@pytest.fixture
def iterate(engine, tmp_path):
    """Trains in iterations of three steps each, with hooks; returns the session."""

    def iterate(hooks=(), save=2, iterations=4, inside=lambda session: None, is_asked=True):
        graph = rh.graph(count_step, total=0, engine=engine, steps_per_epoch=3)
        saver = rh.Saver(keep=[rh.KeepLast(100)])
        with graph.as_default():
            with rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path,
                hooks=hooks,
                save_checkpoint_steps=save,
                saver=saver,
                save_summaries_steps=None,
                log_step_count_steps=None,
            ) as session:
                for _ in range(iterations):
                    if is_asked and session.should_stop():
                        break
                    with session.iteration():
                        for element in range(3):
                            session.run("train_op", {"element": element})
                            inside(session)
        return session

    return iterate


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("save", "steps"), [(1, [0, 3, 6, 9, 12]), (2, [0, 3, 6, 9, 12]), (5, [0, 6, 12])]
)
def test_checkpoints_are_saved_between_iterations(save, steps, iterate, tmp_path):
    iterate(save=save)
    assert steps_in(tmp_path) == steps


class EachRun(rh.SessionRunHook):
    """Notes the step after each run that it is called in; it says nothing of when it is due."""

    def __init__(self):
        self.called = []

    def after_run(self, run_context, run_values):
        self.called.append(run_context.session.global_step)


class Last(EachRun):
    last = True


@pytest.mark.every_engine
def test_hooks_act_in_the_runs(iterate):
    each, steps, called = EachRun(), [], []
    hooks = [
        each,
        rh.CallHook(lambda: steps.append(each.called[-1]), every_n_steps=2),
        rh.CallHook(lambda *it: called.append(tuple(map(int, it))), ["seen"], every_n_steps=2),
        rh.CallHook(lambda it: called.append(("epoch", int(it))), ["epoch"], every_n_epochs=1),
    ]
    iterate(hooks, iterations=2)
    assert each.called == [1, 2, 3, 4, 5, 6]
    assert steps == [2, 4, 6]
    assert called == [(2,), ("epoch", 1), (3,), (7,), ("epoch", 2)]


@pytest.mark.every_engine
def test_averages_are_updated_after_each_step(engine, tmp_path):
    def averages(folder, runs):
        graph = rh.graph(count_step, total=np.float32(0), engine=engine)
        with graph.as_default():
            hooks = [rh.EmaHook("total", 0.5, debias=False)]
            with rh.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
                for _ in range(12 // runs):
                    with session.iteration():
                        for _ in range(runs):
                            session.run("train_op", {"element": np.float32(1)})
        return str(rh.load(folder, "ema"))

    assert averages(tmp_path / "three", 3) == averages(tmp_path / "one", 1)


@pytest.mark.parametrize(
    ("runs", "length", "epochs", "found"),
    [
        (2, 4, 2, [(1, 1.5, 4, 4), (2, 1.5, 8, 8)]),  # an epoch is two iterations
        (3, 4, 3, [(1, 1.5, 6, 6), (2, 1.5, 9, 9), (3, 1.5, 12, 12)]),  # one ends in the middle
        (4, 2, 4, [(2, 0.5, 4, 4), (4, 0.5, 8, 8)]),  # an iteration is two epochs
    ],
)
def test_what_goes_by_epochs_acts_on_the_evaluation_at_the_end(runs, length, epochs, found):
    calls = []

    def hooks():
        test = rh.EvaluationHook(lambda total, x: {"score": total}, [0.0], every_n_epochs=1)

        def report(epoch, mean, step):
            evaluated = test.last_metrics["score"], max(test.metrics_by_step())
            calls.append((int(epoch), float(mean), *map(int, evaluated)))
            assert step < length * epoch  # of the run that has ended the epoch, before its step

        asked = ["epoch", rh.epoch_mean("seen_element"), "global_step"]
        return [rh.CallHook(report, asked, every_n_epochs=1), test]

    def step(total, element):
        return total + 1, {"seen_element": element}

    data = [float(it) for it in range(length)]
    graph = rh.graph(step, total=0.0, data=data, epochs=epochs)
    with graph.as_default(), rh.MonitoredSession(hooks=hooks()) as session:
        while not session.should_stop():
            with session.iteration():
                for _ in range(runs):
                    session.run("train_op")
    assert calls == found


def test_a_hook_that_is_last_and_wants_every_run_is_called_once_at_the_end_of_each(iterate):
    hook = Last()
    iterate([hook], iterations=3)
    assert hook.called == [3, 6, 9]


def test_a_hook_that_is_last_is_called_in_each_run_between_iterations():
    hook = Last()
    with rh.graph(count_step, total=0).as_default():
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(2):
                for _ in range(3):
                    session.run("train_op", {"element": 1})
                with session.iteration():
                    for _ in range(3):
                        session.run("train_op", {"element": 1})
                with pytest.raises(ZeroDivisionError), session.iteration():
                    session.run("train_op", {"element": 1})
                    raise ZeroDivisionError
                with session.iteration():  # makes no run
                    pass
    assert hook.called == [1, 2, 3, 6, 8, 9, 10, 13]


def test_an_evaluation_waits_for_the_end(iterate):
    at = []

    def evaluate(total, element):
        at.append(int(total))
        return {"score": float(total)}

    hook = rh.EvaluationHook(evaluate, data=[0], every_n_steps=2)
    iterate([hook])
    assert at == [3, 6, 9, 12]
    assert hook.metrics_by_step() == {it: {"score": float(it)} for it in at}


@pytest.mark.every_engine
@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_a_hook_that_stops_stops_after_the_iteration(last, iterate, tmp_path):
    asked = []
    session = iterate(
        [rh.StopAtStepHook(last_step=last)], inside=lambda it: asked.append(it.should_stop())
    )
    assert session.global_step == (3 if last <= 3 else 6)
    assert set(asked) == {False}
    assert steps_in(tmp_path)[-1] == session.global_step


def test_request_stop_waits_for_the_end(iterate):
    session = iterate(inside=lambda it: it.request_stop("enough"))
    assert (session.global_step, session.stop_reason) == (3, "enough")


def test_a_loop_that_does_not_ask_is_refused_another_iteration_as_another_run_is(iterate):
    with pytest.raises(RuntimeError, match="iteration was called after StopAtStepHook asked"):
        iterate([rh.StopAtStepHook(last_step=2)], is_asked=False)


def test_it_is_not_nested_and_not_entered_after_close(iterate):
    def nest(session):
        with session.iteration():
            pass

    with pytest.raises(RuntimeError, match="inside another iteration"):
        iterate(inside=nest)
    session = iterate()
    with pytest.raises(RuntimeError, match="iteration was called on a closed session"):
        nest(session)


def test_after_an_error_inside_the_next_iteration_can_begin():
    graph = rh.graph(count_step, total=0)
    with graph.as_default(), rh.MonitoredTrainingSession() as session:
        with pytest.raises(ZeroDivisionError), session.iteration():
            session.run("train_op", {"element": 1})
            raise ZeroDivisionError
        with session.iteration():
            session.run("train_op", {"element": 1})
    assert session.global_step == 2


def test_an_iteration_that_finds_no_session_does_not_begin():
    class Creator(rh.SessionCreator):
        is_first = True

        def create_session(self):
            if not self.is_first:
                raise ValueError("no machine to be had")
            self.is_first = False
            return rh.ChiefSessionCreator().create_session()

    def lose(total):
        raise rh.errors.AbortedError("lost")

    with rh.graph(lose, total=0).as_default():
        session = rh.MonitoredSession(Creator())
        with pytest.raises(ValueError, match="no machine"):
            session.run("train_op")
        for _ in range(2):
            with pytest.raises(ValueError, match="no machine"), session.iteration():
                pass


def test_a_session_that_is_lost_inside_is_not_replaced_as_its_runs_would_be_missing(tmp_path):
    def train(lost_in=None):
        calls = itertools.count()

        def append(digits, digit):
            if next(calls) == lost_in:
                raise rh.errors.AbortedError("lost")
            return digits * 10 + digit, {}

        with rh.graph(append, digits=0).as_default():
            hooks = [rh.StopAtStepHook(last_step=9)]
            with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session:
                while not session.should_stop():
                    with session.iteration():
                        for digit in (1, 2, 3):
                            session.run("train_op", {"digit": digit})
        return rh.load(tmp_path, "digits")

    with pytest.raises(rh.errors.AbortedError) as raised:
        train(lost_in=4)
    assert "lost in an iteration" in raised.value.__notes__[-1]
    assert train() == 123123123


def test_an_error_that_ends_the_loop_saves_nothing_of_the_iteration(iterate, tmp_path):
    def fail(session):
        if session.global_step == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        iterate(inside=fail, save=1)
    assert steps_in(tmp_path) == [0, 3]


def test_data_that_end_inside_are_evaluated_to_their_end(tmp_path):
    graph = rh.graph(count_step, total=0, data=[0] * 5, epochs=2)
    with graph.as_default():
        hook = rh.EvaluationHook(lambda total, it: {"score": total + it}, [0], every_n_epochs=1)
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=[hook]) as session:
            while not session.should_stop():
                with session.iteration():
                    for _ in range(4):
                        session.run("train_op")
    assert hook.metrics_by_step() == {8: {"score": 8.0}, 10: {"score": 10.0}}
    assert steps_in(tmp_path)[-1] == 10


def test_two_steps_of_an_iteration_are_saved_together(tmp_path):
    import torch
    from torch import nn

    def train(last):
        torch.manual_seed(1)
        critic, maker = nn.Linear(1, 1), nn.Linear(1, 1)
        one, two = (torch.optim.Adam(it.parameters(), lr=0.1) for it in (critic, maker))

        def step(optimizer, loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss.detach()}

        def judge(real):
            return step(one, critic(maker(torch.rand(2, 1))).mean() - critic(real).mean())

        def make():
            return step(two, -critic(maker(torch.rand(2, 1))).mean())

        graph = rh.torch.Graph(critic=critic, maker=maker, one=one, two=two)
        with graph.as_default():
            real = rh.inputs([torch.full((2, 1), float(i)) for i in range(3)], 1, epochs=None)
            rh.torch.step(judge, args=[real], name="judge")
            rh.torch.step(make, name="make")
            hooks = [rh.StopAtStepHook(last_step=last)]
            with rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path / ("whole" if last == 40 else "parts"),
                hooks=hooks,
                save_checkpoint_steps=3,
            ) as session:
                while not session.should_stop():
                    with session.iteration():
                        for _ in range(3):
                            session.run("judge")
                        session.run("make")
        assert session.global_step == -(-last // 4) * 4
        return [it.tolist() for it in (*critic.parameters(), *maker.parameters())]

    whole = train(40)
    for last in (5, 14, 39):
        parts = train(last)
    assert parts == whole


def test_what_ended_an_epoch_is_reported_after_a_block_that_raises():
    data = [np.float32(it) for it in range(5)]
    graph = rh.graph(lambda w, x: (w + 1, {"loss": x}), w=np.float32(0), data=data, epochs=2)
    reports = []
    with graph.as_default():
        values = {"epoch": "epoch", "loss": "loss", "mean": rh.epoch_mean("loss")}
        hook = rh.CallHook(lambda **it: reports.append(it), values, every_n_epochs=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                with contextlib.suppress(KeyError), session.iteration():
                    session.run("train_op")
                    if session.global_step == 5:
                        raise KeyError
    assert [float(it["mean"]) for it in reports] == [2.0, 2.0]
    assert [(it["epoch"], float(it["loss"])) for it in reports] == [(1, 4.0), (2, 4.0)]
