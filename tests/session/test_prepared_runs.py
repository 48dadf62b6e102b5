"""An off-step that goes straight to the prepared run is the run that the layers would make."""

import gc
import threading
import weakref

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import FakeClock
from tests.session.small_program import ENGINES, ONE, plain, program


class Sleeps(rh.SessionRunHook):
    """Is called at every ``n``-th step, and keeps the steps it is told."""

    def __init__(self, n):
        self.calls, self.timer = [], rh.Timer(rh.Trigger(every_steps=n))

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        self.calls.append(run_context.next_step)

    def after_run(self, run_context, run_values):
        self.timer.update_last_triggered_step(run_context.session.global_step)


class Watches(rh.SessionRunHook):
    """Watches ``tensor``, and keeps what it sees."""

    def __init__(self, tensor):
        self.tensor, self.calls = tensor, []

    def watched(self):
        return self.tensor

    def watch(self, step, value):
        self.calls.append((step, plain(value)))

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.watch(run_context.session.global_step, run_values.results)


BETWEEN = {
    "assign": lambda p, raw: raw.assign({"global_step": 18}),
    "runs beside": lambda p, raw: [raw.run(p.train, {p.x: ONE}) for _ in range(15)],
    "other runs beside": lambda p, raw: [raw.run(p.twice, {p.x: ONE}) for _ in range(7)],
    "load": lambda p, raw: raw.load(snapshot_at(raw, 18)),
}


def snapshot_at(raw, step):
    snapshot = raw.snapshot({})
    return snapshot._replace(arrays={**snapshot.arrays, "global_step": np.int64(step)})


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("engine", ENGINES)
def test_step_that_something_else_has_moved_makes_hooks_due_in_time(engine, between):
    p, hook = program(engine), Sleeps(20)
    with p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        raw = sess.run_step_fn(lambda step_context: step_context.session)
        for _ in range(4):
            sess.run(p.train, {p.x: ONE})
        assert hook.calls == []
        BETWEEN[between](p, raw)
        moved = sess.global_step
        assert moved >= 18
        while not hook.calls and sess.global_step < 30:
            sess.run(p.train, {p.x: ONE})
        assert hook.calls[0] == 20


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_without_hooks_is_not_watched(engine):
    p = program(engine)
    hook = Watches(p.rate)
    with p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        for number in range(6):
            loss = sess.run((p.train, p.loss), {p.x: ONE}, hooks=number % 3 > 0 and None)
            assert plain(loss)[1] is not None
        assert hook.calls == [(step, 0.5) for step in (2, 3, 5, 6)]


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_may_look_at_variables(engine, change):
    def source():
        while True:
            if change:
                sess.assign({"rate": np.float32(sess.global_step)})
            yield np.float32(sess.run("rate:0"))

    with rh.Graph(engine).as_default():
        rate = rh.Variable(np.float32(2), name="rate")
        total = rh.Variable(np.float32([0, 0]), name="total")
        new = rh.call(
            lambda total, rate, x: total + 10 * rate + x, total, rate, rh.inputs(source())
        )
        train_op = rh.group(total.assign(new), rh.train.create_global_step().assign_add(1))
        with rh.Session() as sess:
            for _ in range(5):
                sess.run(train_op)
            rates = range(5) if change else [2] * 5
            assert plain(sess.run("total:0")) == [sum(11 * it for it in rates)] * 2


@pytest.mark.parametrize("with_summary", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_may_make_runs_that_change_variables(engine, with_summary):
    def source():
        while True:
            sess.run(count_op)
            yield np.float32(0)

    with rh.Graph(engine).as_default():
        seen = rh.Variable(np.float32(0), name="seen")
        total = rh.Variable(np.float32(0), name="total")
        new = rh.call(lambda total, seen, x: total + seen + x, total, seen, rh.inputs(source()))
        count_op = rh.group(seen.assign_add(np.float32(1)))
        train_op = rh.group(total.assign(new), rh.train.create_global_step().assign_add(1))
        summary = rh.summary.scalar("seen", seen)
        with rh.Session() as sess:
            for _ in range(5):
                sess.run([train_op, summary] if with_summary else train_op)
            assert plain(sess.run(["total:0", "seen:0"])) == [15, 5]
            assert sess.global_step == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_comes_as_the_session_is_closed_opens_no_input(engine):
    opened = []

    def source(step):
        opened.append(step)
        return (np.float32(i) for i in range(100))

    with rh.Graph(engine).as_default():
        total = rh.Variable(np.float32(0), name="total")
        train_op = rh.group(total.assign_add(rh.inputs(source)))
        sess = rh.Session()
        for _ in range(3):
            sess.run(train_op)
        run = sess.find_run(train_op)  # as another thread may have it
        sess.close()
        with pytest.raises(RuntimeError, match="closed"):
            run.again(None)
    assert len(opened) == 1


@pytest.mark.parametrize("engine", ["python", "torch"])
def test_a_fetched_variable_has_its_value_from_before_the_run(engine):
    def twice(x):
        sess.run(count_op)  # that a run inside this one changes it makes no difference
        return x + x

    with rh.Graph(engine).as_default():
        seen = rh.Variable(np.float32(0), name="seen")
        other = rh.Variable(np.float32(1), name="other")
        count_op = rh.group(seen.assign_add(np.float32(1)))
        train_op = rh.group(other.assign(rh.call(twice, other)))
        with rh.Session() as sess:
            assert [float(sess.run([train_op, seen])[1]) for _ in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("engine", ["python", "torch"])
@pytest.mark.parametrize("inner", ["train", "other"])
@pytest.mark.parametrize("outer", ["train", "other"])
@pytest.mark.parametrize("before", [[], ["train"] * 3, ["other"] * 3, ["other", "train"] * 2])
def test_a_run_that_is_made_inside_itself_or_another_run_is_refused(engine, outer, inner, before):
    def calls(w):
        if inside:
            sess.run(inside.pop())
        return w + w

    inside = []
    with rh.Graph(engine).as_default():
        w = rh.Variable(np.float32(1), name="w")
        new = rh.call(calls, w)
        rh.group(w.assign(new), rh.train.get_or_create_global_step().assign_add(1), name="train")
        rh.group(w.assign(new), name="other")
        with rh.Session() as sess:
            for fetches in before:
                sess.run(fetches)
            step, expected = sess.global_step, 2.0 ** (len(before) + 1)
            inside.append(inner)
            with pytest.raises(RuntimeError, match="'w' was assigned by a run inside this run"):
                sess.run(outer)
            assert (sess.run(w), sess.global_step) == (expected, step + (inner == "train"))


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_of_a_thread_and_its_failure_are_heard_in_the_next_run(engine):
    p = program(engine)

    class Fails(rh.SessionRunHook):
        def after_create_session(self, session, coord):
            self.coord = coord

    hook = Fails()
    with (
        pytest.raises(ArithmeticError),
        p.graph.as_default(),
        rh.MonitoredSession(hooks=[hook]) as sess,
    ):
        for _ in range(5):
            sess.run(p.train, {p.x: ONE})
        thread = threading.Thread(target=lambda: hook.coord.request_stop(ArithmeticError("lost")))
        thread.start()
        thread.join()
        with pytest.raises(ArithmeticError):
            sess.run(p.train, {p.x: ONE})
        assert sess.global_step == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_hook_that_goes_by_the_clock_is_called_when_it_is_due(engine):
    p, fake = program(engine), FakeClock()
    hook = rh.LoggingTensorHook({"loss": p.loss}, every_n_secs=10, formatter=(logged := []).append)
    with fake, p.graph.as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(25):
            sess.run(p.train, {p.x: ONE})
            fake.advance(1)
    assert len(logged) == 3


def test_old_values_are_not_kept_alive():
    with rh.Graph().as_default():
        w = rh.Variable(np.zeros(1000), name="w")
        train = rh.group(w.assign(rh.call(lambda w: w + 1, w)))
        with rh.Session() as sess:
            seen = []
            for _ in range(4):
                seen.append(weakref.ref(sess.run([train, w])[1]))
            gc.collect()
            assert sum(it() is not None for it in seen) <= 1
