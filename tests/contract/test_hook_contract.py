"""The contract of a hook in its regular course: who is called, with what, in which order."""

import re
from typing import NamedTuple

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook


class Pair(NamedTuple):
    first: object
    second: object


def open_session(*hooks):
    return rh.MonitoredSession(hooks=hooks)


# begin


@pytest.mark.every_engine
def test_begin_sees_the_graph_to_be_launched_as_default_and_may_add_to_it(model, graph):
    class Adds(rh.SessionRunHook):
        def begin(self):
            assert rh.get_default_graph() is graph
            self.twice = model.loss * 2

        def before_run(self, run_context):
            return rh.SessionRunArgs(self.twice)

        def after_run(self, run_context, run_values):
            self.result = run_values.results

    hook = Adds()
    with open_session(hook) as sess:
        sess.run(model.train_op)
        sess.run(model.train_op)
    assert hook.result == 4.0


def test_graph_is_frozen_once_every_hook_has_begun(model):
    with open_session():
        with pytest.raises(RuntimeError, match="final"):
            rh.placeholder("late")
        with pytest.raises(RuntimeError, match="final"):
            model.loss + 1


# before_run and after_run


def test_context_session_is_raw_and_a_run_on_it_calls_no_hook(model):
    class RunsInside(RecordingHook):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            self.loss = run_context.session.run(model.loss)

    hook = RunsInside()
    with open_session(hook) as sess:
        sess.run(model.train_op)
    assert hook.loss == 2.0
    assert hook.methods.count("after_run") == 1


@pytest.mark.every_engine
def test_fetches_of_caller_and_hooks_are_computed_in_one_run(model):
    hooks = [RecordingHook(fetches=model.weights) for _ in range(2)]
    with open_session(*hooks) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert model.faults.drawn == 3
    for hook in hooks:
        # Reads see the weights as they were when the run began.
        np.testing.assert_array_equal(np.stack(hook.results), [[0, 0], [1, 1], [2, 2]])


ASKED = {
    "tensor": (lambda m: m.loss, 0.0),
    "name": (lambda m: "loss:0", 0.0),
    "variable": (lambda m: m.global_step, 0),
    "operation": (lambda m: m.train_op, None),
    "list": (lambda m: [m.loss, m.global_step], [0.0, 0]),
    "tuple": (lambda m: (m.loss, "global_step:0"), (0.0, 0)),
    "named tuple": (lambda m: Pair(m.loss, m.train_op), Pair(0.0, None)),
    "dict": (lambda m: {"step": m.global_step}, {"step": 0}),
    "nested": (lambda m: {"a": [m.loss, (m.train_op,)]}, {"a": [0.0, (None,)]}),
    "empty list": (lambda m: [], []),
    "nothing": (lambda m: None, None),
}


@pytest.mark.parametrize("asked", ASKED)
def test_results_have_the_shape_of_what_the_hook_asked_for(asked, model):
    fetches, expected = ASKED[asked]
    hook = RecordingHook(fetches=fetches(model))
    with open_session(hook) as sess:
        sess.run(model.loss)
    assert hook.results == [expected]
    assert type(hook.results[0]) is type(expected) or asked in ("tensor", "name", "variable")


# feeds


@pytest.mark.every_engine
def test_feeds_of_hooks_and_caller_are_merged(graph):
    a, b, c = (rh.placeholder(name) for name in "abc")
    hooks = [RecordingHook(feed_dict={a: 1}), RecordingHook(feed_dict={"b:0": 2})]
    with open_session(*hooks) as sess:
        assert sess.run([a, b, c], {c: 3}) == [1, 2, 3]


class AlsoFeeds(RecordingHook):
    pass


@pytest.mark.parametrize("other", ["AlsoFeeds", "caller"])
@pytest.mark.parametrize("key", [lambda it: it, lambda it: it.name], ids=["tensor", "name"])
def test_tensor_fed_twice_is_an_error_naming_it_and_both(key, other, graph):
    rate = rh.placeholder("rate")
    again = {key(rate): 2}
    hooks = [RecordingHook(feed_dict={rate: 1})]
    hooks += [AlsoFeeds(feed_dict=again)] * (other != "caller")
    with pytest.raises(RuntimeError, match="rate:0") as caught, open_session(*hooks) as sess:
        sess.run(rate, again if other == "caller" else None)
    assert {"RecordingHook", other} <= set(re.findall(r"\w+", str(caught.value)))


def test_feeds_in_conflict_run_nothing(model):
    hooks = [RecordingHook(feed_dict={model.loss: value}) for value in (1.0, 2.0)]
    with pytest.raises(RuntimeError), open_session(*hooks) as sess:
        sess.run(model.train_op)
    assert model.faults.drawn == 0


# stopping


class Stop(rh.SessionRunHook):
    def __init__(self, method, *reason):
        self.method, self.reason = method, reason

    def before_run(self, run_context):
        if self.method == "before_run":
            run_context.request_stop(*self.reason)

    def after_run(self, run_context, run_values):
        if self.method == "after_run":
            run_context.request_stop(*self.reason)


@pytest.mark.parametrize("method", ["before_run", "after_run"])
@pytest.mark.parametrize(
    ("reason", "shown"), [((), "Stop"), ((None,), "Stop"), (("plateau",), "Stop (plateau)")]
)
def test_the_reason_is_shown_with_the_name_of_the_hook(model, method, reason, shown):
    with rh.MonitoredSession(hooks=[Stop(method, *reason)]) as sess:
        sess.run(model.train_op)
        assert sess.should_stop()
        assert (sess.stop_reason, sess.global_step) == (shown, 1)
        with pytest.raises(RuntimeError, match=shown.replace("(", r"\(").replace(")", r"\)")):
            sess.run(model.train_op)
    assert sess.stop_reason == shown


def test_the_first_hook_that_asks_is_shown(model):
    class Other(Stop):
        pass

    hooks = [Stop("after_run"), Other("after_run", "too late")]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(model.train_op)
    assert sess.stop_reason == "Stop"


def test_a_reason_is_a_text(model):
    with rh.MonitoredSession(hooks=[Stop("after_run", 5)]) as sess:
        with pytest.raises(TypeError, match="reason"):
            sess.run(model.train_op)


# which objects are hooks


def test_hook_of_another_library_needs_only_the_five_methods(model):
    calls = []

    class Foreign:
        def begin(self):
            calls.append("begin")

        def after_create_session(self, session, coord):
            calls.append("after_create_session")

        def before_run(self, run_context):
            calls.append("before_run")
            return rh.SessionRunArgs(model.loss)

        def after_run(self, run_context, run_values):
            calls.append(run_values.results)

        def end(self, session):
            calls.append("end")

    with open_session(Foreign()) as sess:
        sess.run(model.train_op)
    assert calls == ["begin", "after_create_session", "before_run", 0.0, "end"]


@pytest.mark.parametrize(
    "not_a_hook", [object(), "StopAtStepHook", RecordingHook], ids=["object", "str", "class"]
)
def test_what_is_not_a_hook_is_refused_by_name_before_anything_begins(not_a_hook, model):
    hook = RecordingHook()
    with pytest.raises(TypeError, match="hook"):
        open_session(hook, not_a_hook)
    assert hook.calls == []


# one run with other hooks


def test_hooks_false_runs_without_hooks(model):
    hook = RecordingHook()
    with open_session(hook) as sess:
        hook.calls.clear()
        assert sess.run([model.loss, model.train_op], hooks=False) == [0.0, None]
        assert hook.calls == []
        assert sess.global_step == 1


def test_hooks_list_runs_with_these_alone(model):
    chosen, other = RecordingHook(fetches=model.loss), RecordingHook()
    with open_session(chosen, other) as sess:
        for hook in (chosen, other):
            hook.calls.clear()
        sess.run(model.train_op, hooks=[chosen])
        assert chosen.methods == ["before_run", "after_run"]
        assert chosen.results == [0.0]
        assert other.calls == []


def test_hooks_of_one_run_leave_the_next_run_as_it_was(model):
    hook = RecordingHook()
    with open_session(hook) as sess:
        sess.run(model.train_op, hooks=False)
        hook.calls.clear()
        sess.run(model.train_op)
    assert hook.methods == ["before_run", "after_run", "end"]
