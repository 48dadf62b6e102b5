"""A loop whose batches somebody else makes, driven by hand; bridges whose framework is missing."""

import subprocess
import sys

import pytest

import runhooks as rh
from runhooks.bridges import require
from runhooks.bridges.batch_graph import BatchEngine, BatchGraph, BatchValues
from runhooks.bridges.hooked_loop import HookedLoop
from runhooks.testing import RecordingHook


class Values(BatchValues):
    title = "Nobody"
    reads = 0

    def reader(self, name):
        return self.read if name == "loss" else None

    def read(self):
        self.reads += 1
        return 0.5

    def names(self):
        return ["loss"]

    def scalars(self):
        return {"loss": 0.5}


class Every(rh.SessionRunHook):
    """Fetches the loss when its timer says so."""

    def __init__(self, steps):
        self.timer = rh.Timer(rh.Trigger(every_steps=steps))
        self.seen = []

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step)

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        return rh.SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        step = run_context.session.global_step
        self.timer.update_last_triggered_step(step)
        self.seen.append((step, run_values.results))


@pytest.fixture
def values():
    return Values()


@pytest.fixture
def make_loop(values):
    return lambda *hooks: HookedLoop(BatchGraph(values, BatchEngine()), hooks, None, None, None)


def run(loop, steps):
    for step in steps:
        loop.before_batch()
        if loop.after_batch(step):
            break


def test_a_batch_is_counted_once_whoever_is_due(make_loop):
    class Counts(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            self.session = session

    hook = Counts()
    loop = make_loop(hook, Every(4))
    loop.open(0)
    session = hook.session
    assert (session.runs, session.changes) == (0, 0)
    run(loop, range(1, 11))
    assert (session.runs, session.changes, session.global_step) == (10, 10, 10)
    loop.end()


def test_batches_that_are_several_steps_wake_a_hook_late_and_then_in_time(make_loop):
    hook = Every(4)
    loop = make_loop(hook)
    loop.open(0)
    run(loop, [3, 6, 9, 12])
    loop.end()
    # The first jump is not expected: no value was asked for.
    assert hook.seen == [(6, 0.5), (9, 0.5), (12, 0.5)]


def test_a_hook_that_reaches_the_end_of_an_input_stops_the_loop(make_loop):
    class Ends(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise StopIteration("no more")

    recorder = RecordingHook()
    loop = make_loop(recorder, Ends())
    loop.open(0)
    run(loop, range(1, 11))
    assert "no more" in loop.stop_reason
    loop.end()
    assert recorder.methods[-1] == "end"


def test_the_error_of_a_thread_ends_the_loop(make_loop):
    class Starts(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            self.coord = coord

    hook, recorder = Starts(), RecordingHook()
    loop = make_loop(hook, recorder)
    loop.open(0)
    run(loop, [1])
    hook.coord.request_stop(OSError("a thread has failed"))
    with pytest.raises(OSError, match="a thread has failed"):
        run(loop, [2])
    assert recorder.methods[-1] == "on_exception"
    assert not loop.is_open


def test_a_loop_that_was_left_open_fails_when_the_next_opens(make_loop):
    hook = RecordingHook()
    loop = make_loop(hook)
    loop.open(0)
    run(loop, [1])
    loop.open(1)
    loop.end()
    assert hook.methods.count("begin") == 2
    assert hook.methods.count("on_exception") == 1
    assert hook.methods[-1] == "end"


def test_a_hook_that_fails_to_begin_closes_the_loop(make_loop):
    class Bad(rh.SessionRunHook):
        def begin(self):
            raise ValueError("cannot begin")

    hook = RecordingHook()
    loop = make_loop(hook, Bad())
    with pytest.raises(ValueError, match="cannot begin"):
        loop.open(0)
    assert hook.methods == ["begin", "on_exception"]
    assert not loop.is_open


def test_hooks_may_compute_with_the_values(make_loop):
    class Doubles(rh.SessionRunHook):
        def begin(self):
            graph = rh.get_default_graph()
            self.twice = graph["loss"] * 2
            self.summary = rh.summary.scalar("twice", self.twice)

        def before_run(self, run_context):
            return rh.SessionRunArgs([self.twice, self.summary, rh.train.get_global_step()])

        def after_run(self, run_context, run_values):
            self.got = run_values.results

    hook = Doubles()
    loop = make_loop(hook)
    loop.open(4)
    run(loop, [5])
    loop.end()
    twice, summary, step = hook.got
    assert (twice, step) == (1.0, 4)  # the step that the run began with
    assert summary[0].tag == "twice"


def test_states_that_are_damaged_are_one_error(make_loop):
    with pytest.raises(ValueError, match="the states of hooks in the checkpoint are damaged"):
        make_loop().load_state_dict({"hooks": "{"})


def test_a_hook_cannot_save_the_training(make_loop):
    class Saves(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            rh.Saver().save(session, "nowhere")

    with pytest.raises(RuntimeError, match="let Nobody save its checkpoints"):
        make_loop(Saves()).open(0)


# --- Bridges as a package


def test_a_missing_framework_is_named_with_what_to_install():
    with pytest.raises(ImportError, match=r"needs nowhere, .* pip install 'nowhere>=3'") as caught:
        require("nowhere", "nowhere>=3")
    assert caught.value.name == "nowhere"


def test_there_are_no_other_bridges():
    with pytest.raises(AttributeError, match=r"'runhooks.bridges' has no attribute 'kerras'"):
        rh.bridges.kerras  # noqa: B018


def test_the_package_imports_no_framework():
    code = "import sys, runhooks as rh; rh.bridges; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    frameworks = {"accelerate", "ignite", "keras", "lightning", "optuna", "torch", "transformers"}
    assert frameworks.isdisjoint(loaded)
