"""The hooks of ``tf.compat.v1.train`` as its programs and tests use them: what comes of it is same.

Each program is played with TensorFlow's hooks and with ours, in TensorFlow's own sessions, which
call every hook in every run, some of them after ``begin`` alone, and in the sessions of ``train``.
"""

import json
import logging
import time
from pathlib import Path
from unittest import mock

import pytest
import tensorflow
from tensorflow.python.training import training_util
from tensorflow.python.training.monitored_session import _HookedSession

import runhooks as rh
from runhooks.contract import StopRequest
from runhooks.tensorflow import train as ours
from runhooks.testing import FakeClock

tf = tensorflow.compat.v1
PROGRAMS = {}
CLOCK = FakeClock()  # for TensorFlow's hooks and for ours


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def cases(function, *arguments):
    for argument in arguments:
        PROGRAMS[f"{function.__name__}-{argument}"] = lambda train, folder, argument=argument: (
            function(train, folder, argument)
        )


def step_op(by=1):
    # TensorFlow's hooks read the step in the run that increases it: before that, here.
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
        return tf.assign_add(step, by).op


class Loop:
    """TensorFlow's loop around a raw session, which calls ``begin`` and nothing else before it."""

    def __init__(self, *hooks):
        for hook in hooks:
            hook.begin()
        self.hooks, self.raw = hooks, tf.Session()
        self.raw.run(tf.global_variables_initializer())
        self._session = _HookedSession(self.raw, hooks)
        self.run, self.should_stop = self._session.run, self._session.should_stop

    def create(self):
        for hook in self.hooks:
            hook.after_create_session(self.raw, None)

    def end(self):
        for hook in self.hooks:
            hook.end(self.raw)


class Writer:
    """A summary writer of the user's own, which looks into what it is given."""

    def __init__(self):
        self.summaries, self.logs = {}, []

    def add_summary(self, summary, step):
        if isinstance(summary, bytes):
            summary = tf.Summary.FromString(summary)
        self.summaries.setdefault(step, []).extend((v.tag, v.simple_value) for v in summary.value)

    def add_session_log(self, session_log, step):
        self.logs.append((session_log.status == tf.SessionLog.START, step))

    def flush(self):
        pass


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch):
    monkeypatch.setattr(time, "time", CLOCK.wall)
    with CLOCK:
        yield


@pytest.fixture(autouse=True)
def _close_writers():
    yield
    tf.summary.FileWriterCache.clear()
    rh.summary.FileWriterCache.clear()


def said(text, act):
    """How many lines with ``text`` are logged meanwhile, where TensorFlow's go."""
    lines, logger = [], tensorflow.get_logger()
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = logger.level
    tf.logging.set_verbosity(tf.logging.INFO)
    logger.addHandler(handler)
    try:
        act()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return sum(text in line for line in lines)


# Timers


@program
def timer_by_seconds(train, folder):
    timer, seen = train.SecondOrStepTimer(every_secs=1.0), []
    seen.append(timer.should_trigger_for_step(1))
    timer.update_last_triggered_step(1)
    seen += [timer.should_trigger_for_step(step) for step in (1, 2)]
    CLOCK.advance(1)
    return [*seen, *[timer.should_trigger_for_step(step) for step in (1, 2)]]


@program
def timer_by_steps(train, folder):
    timer = train.SecondOrStepTimer(every_steps=3)
    seen = [timer.last_triggered_step(), timer.should_trigger_for_step(1)]
    seen += [timer.update_last_triggered_step(1), timer.update_last_triggered_step(5)[1]]
    seen += [timer.should_trigger_for_step(step) for step in (4, 5, 7, 8)]
    timer.reset()
    return [*seen, timer.last_triggered_step(), timer.should_trigger_for_step(1)]


# Arguments: the kind of the error, and that its text has a word in it


def wrong(train, folder, arguments):
    make, word = {
        "no_step": (lambda: train.StopAtStepHook(), "of"),
        "both_steps": (lambda: train.StopAtStepHook(num_steps=1, last_step=2), "one of"),
        "no_iter": (lambda: train.LoggingTensorHook(["t"], every_n_iter=0), "nvalid every_n_iter"),
        "both_of_iter": (lambda: train.LoggingTensorHook(["t"], 5, 5), "xactly one of"),
        "none_of_iter": (lambda: train.LoggingTensorHook(["t"]), "xactly one of"),
        "counter": (lambda: train.StepCounterHook(None), "xactly one of"),
        "no_summary": (lambda: train.SummarySaverHook(save_steps=1), "xactly one of"),
        "save": (lambda: train.CheckpointSaverHook(folder), "of|Either"),
        "lacks_step": (lambda: train.StopAtStepHook(1).begin(), "Global step should be created"),
        "two_outputs": (
            lambda: [
                tf.split([1, 2], 2, name="two"),
                train.LoggingTensorHook(["two"], every_n_iter=1).begin(),
            ],
            "mbiguous",
        ),
    }[arguments]
    with pytest.raises((ValueError, RuntimeError), match=word) as caught:
        make()
    return type(caught.value).__name__


cases(
    wrong, "no_step", "no_iter", "both_of_iter", "none_of_iter", "counter", "no_summary", "save",
    "lacks_step", "two_outputs",
)  # fmt: skip


# Stopping and waiting


@program
def last_step_without_a_coordinator(train, folder):
    step = tf.train.get_or_create_global_step()
    to = {n: tf.assign(step, n).op for n in (5, 9, 10)}
    nothing = tf.no_op()
    loop, seen = Loop(train.StopAtStepHook(last_step=10)), []
    for n in (5, 9, 10):
        loop.raw.run(to[n])
        loop.create()
        loop.run(nothing)
        seen.append(loop.should_stop())
    return seen


@program
def nothing_to_wait_for_before_variables_have_values(train, folder):
    tf.train.get_or_create_global_step()
    hook = train.GlobalStepWaiterHook(0)
    hook.begin()
    with tf.Session() as session:
        return hook.before_run(train.SessionRunContext(None, session))


@program
def waits_until_others_have_made_steps(train, folder):
    op, slept = step_op(500), []
    hook = train.GlobalStepWaiterHook(1000)
    hook.begin()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def sleep(*args):
            slept.append(args[-1] > 0)
            assert len(slept) < 3
            session.run(op)

        wait = mock.patch.object(StopRequest, "wait", sleep)
        with mock.patch.object(time, "sleep", sleep), wait:
            hook.before_run(train.SessionRunContext(None, session))
    return slept


# Logging


def lines_by_steps(train, folder, at_end):
    value, op = tf.constant(42.0, name="value"), step_op()
    loop = Loop(train.LoggingTensorHook([value.name], every_n_iter=10, at_end=at_end))
    counts = [said("value:0 = 42.0", lambda: loop.run(op)) for _ in range(22)]
    return counts, said("value:0 = 42.0", loop.end)


cases(lines_by_steps, True, False)


@program
def lines_at_the_end_alone(train, folder):
    value, op = tf.constant(42.0, name="value"), step_op()
    loop = Loop(train.LoggingTensorHook([value.name], at_end=True))
    return said("value", lambda: loop.run(op)), said("value", loop.end)


@program
def lines_in_a_session_go_where_the_verbosity_is_set(train, folder):
    op = step_op()

    def loop():
        logging_hook = train.LoggingTensorHook(["global_step"], every_n_iter=2)
        hooks = [logging_hook, train.StepCounterHook(2)]
        with train.MonitoredSession(hooks=hooks) as session:
            for _ in range(5):
                session.run(op)
                CLOCK.advance(1)

    return said("global_step = ", loop), said("global_step/sec: ", loop)


# Summaries


def summaries(train, folder, by):
    value = tf.assign_add(tf.get_variable("v", initializer=0.0), 1.0)
    summary_op = [tf.summary.scalar("one", value), tf.summary.scalar("two", value * 2)]
    writer, op = Writer(), step_op()
    hook = train.SummarySaverHook(summary_writer=writer, summary_op=summary_op, **{by: 8})
    loop = Loop(hook)
    for _ in range(20):
        loop.run(op)
        CLOCK.advance(1)
    loop.end()
    return writer.summaries, writer.logs


cases(summaries, "save_steps", "save_secs")


def steps_per_second(train, folder, every_and_by):
    every, by = every_and_by
    writer, op = Writer(), step_op(by)
    hook = train.StepCounterHook(every, summary_writer=writer)
    hook._set_steps_per_run(by)
    loop = Loop(hook)
    for _ in range(5):
        loop.run(op)
        CLOCK.advance(0.25)
    loop.end()
    return {step: [(t, v > 0) for t, v in got] for step, got in writer.summaries.items()}


cases(steps_per_second, (1, 1), (2, 1), (10, 5), (5, 5), (5, 10))


@program
def step_is_never_increased(train, folder):
    op = step_op(0)
    loop = Loop(train.StepCounterHook(1))
    loop.run(op)
    return said("has not been increased", lambda: [loop.run(op) for _ in range(9)]) > 0


@program
def writer_of_the_users_own_writes_with_tensorflows(train, folder):
    class Mine(Writer):
        def add_summary(self, summary, step):
            inner.add_summary(summary, step)

        def add_session_log(self, session_log, step):
            inner.add_session_log(session_log, step)

    inner, op = tf.summary.FileWriter(folder), step_op()
    with train.MonitoredSession(hooks=[train.StepCounterHook(1, summary_writer=Mine())]) as session:
        for _ in range(3):
            session.run(op)
            time.sleep(0.001)
            CLOCK.advance(1)
    inner.close()
    return [(event.step, value.tag) for event, value in values_in(folder)]


def events_in(folder):
    return [
        event
        for path in sorted(Path(folder).glob("events*"))
        for event in tf.train.summary_iterator(str(path))
    ]


def values_in(folder):
    return [(event, value) for event in events_in(folder) for value in event.summary.value]


# Checkpoints


def listener_of(train):
    class Listener(train.CheckpointSaverListener):
        def __init__(self):
            self.heard, self.stops = [], False

        def begin(self):
            self.heard.append("begin")

        def before_save(self, session, global_step_value):
            self.heard.append(("before", int(global_step_value)))

        def after_save(self, session, global_step_value):
            self.heard.append(("after", int(global_step_value)))
            return self.stops

        def end(self, session, global_step_value):
            self.heard.append(("end", int(global_step_value)))

    return Listener()


def saved(folder):
    return tf.train.load_variable(folder, "global_step")


def checkpoints(train, folder, by):
    op, listener = step_op(), listener_of(train)
    saver = tf.train.Saver()
    hook = train.CheckpointSaverHook(folder, saver=saver, listeners=(listener,), **{by: 2})
    loop, steps = Loop(hook), []
    loop.create()
    for secs in (0.5, 0.5, 2, 0.5, 0.5, 2, 0.5):
        CLOCK.advance(secs)
        loop.run(op)
        steps.append(int(saved(folder)))
    loop.end()
    return steps, listener.heard, sorted(p.name for p in Path(folder).glob("[!e.]*"))


cases(checkpoints, "save_steps", "save_secs")


@program
def checkpoints_of_several_steps_a_run(train, folder):
    op, saver = step_op(5), tf.train.Saver()
    hook = train.CheckpointSaverHook(folder, save_steps=10, saver=saver, save_graph_def=False)
    hook._set_steps_per_run(5)
    loop, steps = Loop(hook), []
    loop.create()
    for _ in range(5):
        loop.run(op)
        steps.append(int(saved(folder)))
    loop.end()
    has_graph = any(event.graph_def for event in events_in(folder))
    return steps, int(saved(folder)), has_graph, sorted(p.name for p in Path(folder).glob("[!e.]*"))


@program
def listener_of_two_hooks_counts_twice(train, folder):
    op, listener = step_op(), listener_of(train)
    hooks = [
        train.CheckpointSaverHook(f"{folder}/{name}", save_steps=1, listeners=[listener])
        for name in "ab"
    ]
    with train.SingularMonitoredSession(hooks=hooks) as session:
        session.run(op)
    return sorted(map(str, listener.heard))


def savers(train, folder, number):
    step_op()
    for _ in range(number):
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    loop = Loop(train.CheckpointSaverHook(folder, save_steps=1))
    words = {0: "No items in collection", 2: "More than one item in collection"}
    with pytest.raises(RuntimeError, match=words[number]):
        loop.create()


cases(savers, 0, 2)


# Losses, ends and profiles


@program
def nan_is_tensorflows_error(train, folder):
    loss = tf.placeholder_with_default(1.0, [])
    loop = Loop(train.NanTensorHook(loss))
    loop.run(loss)
    with pytest.raises(tf.train.NanLossDuringTrainingError, match="NaN loss during training"):
        loop.run(loss, {loss: float("nan")})


@program
def nan_stops(train, folder):
    loss = tf.placeholder_with_default(1.0, [])
    loop = Loop(train.NanTensorHook(loss, fail_on_nan_loss=False))
    return said("NaN", lambda: loop.run(loss, {loss: float("nan")})), loop.should_stop()


@program
def final_ops_draw_from_an_input_at_its_end(train, folder):
    element = tf.data.make_one_shot_iterator(tf.data.Dataset.range(1)).get_next()
    loop = Loop(train.FinalOpsHook(element))
    loop.raw.run(element)

    def end():
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
            loop.end()

    return said("dependency back to some input source", end)


def timelines(train, folder, save_steps):
    op = step_op()
    hook = train.ProfilerHook(save_steps, output_dir=folder, show_dataflow=False)
    with train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            session.run(op)
    tf.summary.FileWriterCache.clear()
    files = {p.name: json.loads(p.read_text()) for p in Path(folder).glob("timeline-*")}
    phases = {name: sorted({e["ph"] for e in f["traceEvents"]}) for name, f in files.items()}
    events = events_in(folder)
    tags = [event.tagged_run_metadata.tag for event in events]
    return phases, [tag for tag in tags if tag], any(event.graph_def for event in events)


cases(timelines, 1, 2, 3)


@program
def timelines_in_tensorflows_loop(train, folder):
    op = step_op()
    loop = Loop(train.ProfilerHook(save_secs=2, output_dir=folder))
    for secs in (0, 2.5, 0.1, 1.8, 0.2):
        CLOCK.advance(secs)
        loop.run(op)
    return sorted(path.name for path in Path(folder).glob("timeline-*"))


def played(name, train, folder):
    folder.mkdir()
    with tensorflow.Graph().as_default():
        return PROGRAMS[name](train, str(folder))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comes_of_it_is_the_same(name, tmp_path):
    theirs = played(name, tf.train, tmp_path / "theirs")
    assert played(name, ours, tmp_path / "ours") == theirs


def test_nan_is_caught_as_either_error_and_says_where(tmp_path):
    with tensorflow.Graph().as_default():
        loss = tf.placeholder_with_default(float("nan"), [], name="loss")
        with pytest.raises(tf.train.NanLossDuringTrainingError) as caught:
            with ours.MonitoredSession(hooks=[ours.NanTensorHook(loss)]) as session:
                session.run(loss)
    assert isinstance(caught.value, ours.NanLossDuringTrainingError)
    assert "'loss:0'" in str(caught.value)


def test_lines_of_a_graph_of_tensorflows_are_logged_once(caplog):
    with tensorflow.Graph().as_default():
        value = tf.constant(42.0, name="value")
        with caplog.at_level("INFO", "tensorflow"), caplog.at_level("INFO", "runhooks"):
            hook = ours.LoggingTensorHook([value], every_n_iter=1)
            with ours.MonitoredSession(hooks=[hook]) as session:
                session.run(value)
    assert caplog.messages.count("value:0 = 42.0") == 1


def test_eager_values_are_logged_as_numbers(caplog):
    caplog.set_level("INFO", "runhooks")
    with rh.Graph().as_default():
        values = rh.call(lambda: tensorflow.constant([1.5, 2.0]), name="values")
        with rh.MonitoredSession(hooks=[rh.LoggingTensorHook([values], 1)]) as session:
            session.run(values)
    assert "values:0 = [1.5 2. ]" in caplog.messages
