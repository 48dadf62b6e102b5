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


def test_second_session_on_a_graph_begins_built_in_hooks_without_adding_to_it(model, graph):
    summary = rh.summary.scalar("loss", model.loss)
    hooks = [
        rh.StopAtStepHook(last_step=2),
        rh.StepCounterHook(summary_writer=Silent()),
        rh.SummarySaverHook(save_steps=1, summary_writer=Silent(), summary_op=summary),
        rh.LoggingTensorHook({"loss": model.loss}, every_n_iter=1),
    ]
    for hook in hooks:
        hook.begin()
    names = [op.name for op in graph.get_operations()]
    for hook in hooks:
        hook.begin()
    assert [op.name for op in graph.get_operations()] == names


class Silent:
    """A summary writer that writes nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


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


@pytest.mark.parametrize("key", ["by tensor", "by name"])
def test_tensor_fed_by_two_hooks_is_an_error_naming_it_and_both(key, graph):
    rate = rh.placeholder("rate")

    class Feeds(RecordingHook):
        pass

    class AlsoFeeds(RecordingHook):
        pass

    hooks = [Feeds(feed_dict={rate: 1}), AlsoFeeds(feed_dict={key_of(rate, key): 2})]
    with pytest.raises(RuntimeError, match="rate:0") as caught, open_session(*hooks) as sess:
        sess.run(rate)
    assert {"Feeds", "AlsoFeeds"} <= set(re.findall(r"\w+", str(caught.value)))


@pytest.mark.parametrize("key", ["by tensor", "by name"])
def test_tensor_fed_by_hook_and_caller_is_an_error_naming_it_and_both(key, graph):
    rate = rh.placeholder("rate")
    hook = RecordingHook(feed_dict={rate: 1})
    with pytest.raises(RuntimeError, match="rate:0") as caught, open_session(hook) as sess:
        sess.run(rate, {key_of(rate, key): 1})
    assert "RecordingHook" in str(caught.value)
    assert "caller" in str(caught.value)


def key_of(tensor, how):
    return tensor if how == "by tensor" else tensor.name


def test_feeds_in_conflict_run_nothing(model):
    hooks = [RecordingHook(feed_dict={model.loss: value}) for value in (1.0, 2.0)]
    with pytest.raises(RuntimeError), open_session(*hooks) as sess:
        sess.run(model.train_op)
    assert model.faults.drawn == 0


# stopping


def test_request_stop_in_before_run_still_lets_the_run_happen(model):
    class Stops(rh.SessionRunHook):
        def before_run(self, run_context):
            run_context.request_stop()

    with open_session(Stops()) as sess:
        sess.run(model.train_op)
        assert sess.should_stop()
        assert sess.global_step == 1


# order


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


def test_one_hook_given_without_a_list_is_refused(model):
    with pytest.raises(TypeError, match="hooks"):
        rh.MonitoredSession(hooks=RecordingHook())


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
