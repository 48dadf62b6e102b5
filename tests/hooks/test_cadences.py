"""When each hook acts: by steps, by seconds, by a trigger, in a resumed run, and after a loss."""

import numpy as np
import pytest

import runhooks as rh
from runhooks.bridges.tracking import TrackingHook
from runhooks.testing import FakeClock
from runhooks.trigger import Trigger


class Writer:
    """Notes the steps of the summaries that it is given."""

    def __init__(self, act):
        self.act = act

    def add_summary(self, summary, step):
        self.act(step)


class Listener(rh.CheckpointSaverListener):
    def __init__(self, act):
        self.act = act

    def after_save(self, session, global_step_value):
        self.act(global_step_value)


class Here(rh.SessionRunHook):
    """Knows the step of its session."""

    first = True

    def after_create_session(self, session, coord):
        self.session = session

    @property
    def step(self):
        return self.session.global_step


def logging_hook(act, here, tmp_path, **cadence):
    def line(values):
        act(here.step)
        return "a line"

    return rh.LoggingTensorHook(["loss:0"], formatter=line, **cadence)


def summary_hook(act, here, tmp_path, **cadence):
    summary = rh.summary.scalar("loss", "loss:0", collections=[])
    return rh.SummarySaverHook(summary_writer=Writer(act), summary_op=summary, **cadence)


def early_stopping_hook(act, here, tmp_path, run_every_secs=None, **cadence):
    return rh.make_early_stopping_hook(None, lambda: act(here.step), run_every_secs, **cadence)


def evaluation_hook(act, here, tmp_path, **cadence):
    return rh.EvaluationHook({"loss": "loss:0"}, summary_writer=Writer(act), **cadence)


#: How each is made, the names of its cadences (None: a trigger's), and the steps at which it acts:
#: every 3 steps, every 3 seconds, of 8 steps that take a second each.
FIRST, ROUND = [1, 4, 7], [3, 6]
HOOKS = {
    "logging": (logging_hook, "every_n_iter", "every_n_secs", FIRST, FIRST),
    "summary": (summary_hook, "save_steps", "save_secs", FIRST, FIRST),
    "step_counter": (
        lambda act, here, tmp_path, **cadence: rh.StepCounterHook(
            summary_writer=Writer(act), **{"every_n_steps": None, **cadence}
        ),
        *("every_n_steps", "every_n_secs", [4, 7], [4, 7]),
    ),
    "throughput": (
        lambda act, here, tmp_path, **cadence: rh.ThroughputHook(
            summary_writer=Writer(act), **{"every_n_steps": None, **cadence}
        ),
        *("every_n_steps", None, ROUND, [4, 7]),
    ),
    "hook_times": (
        lambda act, here, tmp_path, **cadence: rh.HookTimesHook(
            summary_writer=Writer(act), **{"every_n_steps": None, **cadence}
        ),
        *("every_n_steps", None, ROUND, [4, 7]),
    ),
    "evaluation": (evaluation_hook, "every_n_steps", None, ROUND, ROUND),
    "early_stopping": (early_stopping_hook, "run_every_steps", "run_every_secs", ROUND, FIRST),
    "tracking": (
        lambda act, here, tmp_path, **cadence: TrackingHook(
            lambda numbers, step: act(step), ["loss:0"], **cadence
        ),
        *("every_n_steps", None, ROUND, ROUND),
    ),
    "call": (
        lambda act, here, tmp_path, **cadence: rh.CallHook(lambda: act(here.step), **cadence),
        *("every_n_steps", None, ROUND, ROUND),
    ),
    "checkpoint": (
        lambda act, here, tmp_path, **cadence: rh.CheckpointSaverHook(
            tmp_path / "saved", listeners=[Listener(act)], **cadence
        ),
        *("save_steps", "save_secs", [0, 3, 6, 8], [0, 3, 6, 8]),
    ),
}


@pytest.fixture(params=HOOKS)
def kind(request):
    return HOOKS[request.param]


@pytest.fixture
def acts(model, kind, tmp_path):
    """The steps at which the hook acts in a loop of 8 seconds; one in which ``lost`` is made again.

    With ``resumes``, it is started three times.
    """
    make, *_ = kind

    def acts(lost=None, resumes=False, **cadence):
        found = []
        with FakeClock() as clock:
            for until in (2, 5, 8) if resumes else (8,):
                here = Here()
                hooks = [here, make(found.append, here, tmp_path, **cadence)]
                folder = tmp_path / "run" if resumes else None
                with rh.MonitoredTrainingSession(
                    checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
                ) as sess:
                    while sess.global_step < until:
                        clock.advance(1)
                        if sess.global_step == lost:
                            model.faults.fail(rh.errors.AbortedError("lost"))
                            lost = None
                        sess.run(model.train_op)
        return found

    return acts


def test_every_so_many_steps(acts, kind):
    _, steps, _, expected, _ = kind
    assert acts(**{steps: 3}) == expected


def test_every_so_many_seconds(acts, kind):
    _, _, secs, _, expected = kind
    cadence = {"trigger": Trigger(every_secs=3)} if secs is None else {secs: 3}
    assert acts(**cadence) == expected


def test_at_the_steps_of_a_trigger_and_at_the_end(acts, kind):
    ends = kind[0] not in (early_stopping_hook, HOOKS["tracking"][0])
    first = [0] if kind is HOOKS["checkpoint"] else []
    trigger = Trigger(every_steps=4, on_steps=[3], at_end=True)
    assert acts(trigger=trigger) == [*first, 3, 4, 8]
    trigger = Trigger(on_steps=np.array([3, 5]), at_end=ends)
    last = [8] if ends or first else []
    assert acts(trigger=trigger) == [*first, 3, 5, *last]


def test_a_resumed_run_acts_at_the_steps_of_an_undisturbed_one(acts, kind):
    found = acts(resumes=True, trigger=Trigger(every_steps=3))
    if kind is HOOKS["checkpoint"]:
        assert {*ROUND, 2, 5, 8} <= {*found}  # and at the end of each run
    elif kind in (HOOKS["step_counter"], HOOKS["throughput"], HOOKS["hook_times"]):
        assert found == []  # each run is measured by itself, from its first step on
    else:
        assert found == ROUND


def test_a_session_lost_without_a_checkpoint_begins_again(acts, kind):
    assert acts(lost=4, trigger=Trigger(on_steps=[3, 5]))[-3:] in ([3, 3, 5], [3, 5, 8])


def test_after_a_loss_it_goes_by_the_epochs_of_the_new_session(kind, tmp_path):
    make, *_ = kind
    found, here, losses = [], Here(), iter([rh.errors.AbortedError("lost")])

    def train_step(x, batch):
        if x == 5 and (lost := next(losses, None)):
            raise lost
        return x + 1

    # Without a length: when an epoch ends is asked of the data themselves.
    with rh.graph(train_step, x=0, data=lambda: iter([1.0, 2.0]), epochs=4).as_default():
        rh.Variable(0.0, name="loss")
        hook = make(found.append, here, tmp_path, trigger=Trigger(every_epochs=1))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path / "run",
            hooks=[here, hook],
            save_checkpoint_steps=3,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as sess:
            while not sess.should_stop():
                sess.run("train_op")
    assert (sess.global_step, sess.recoveries) == (8, 1)
    assert [it for it in found if it > 4] == [6, 8]


def test_called_in_every_run_it_acts_at_the_same_steps(model, kind, every_run, tmp_path):
    make, steps, _, expected, _ = kind
    found, here = [], Here()
    hook = make(found.append, here, tmp_path, **{steps: 3})
    with FakeClock() as clock:
        sess = every_run(hook)
        here.session = sess.raw
        for _ in range(8):
            clock.advance(1)
            sess.run(model.train_op)
        hook.end(sess.raw)
    assert found == expected
