"""Hooks that ask in every run of a ``tf.Graph``: what they change from run to run counts."""

from unittest import mock

import pytest
import tensorflow as tf

from runhooks.engines.foreign import session_of
from runhooks.tensorflow import train

v1 = tf.compat.v1


class Asks(v1.train.SessionRunHook):
    """A hook of TensorFlow's own kind; ``request(run)`` says what it asks for in each run."""

    def __init__(self, request):
        self.request, self.runs, self.seen = request, 0, []

    def before_run(self, run_context):
        self.runs += 1
        return self.request(self.runs)

    def after_run(self, run_context, run_values):
        traced = len(run_values.run_metadata.step_stats.dev_stats) > 0
        self.seen.append((run_values.results, run_values.options.trace_level, traced))


def trained(hooks_of, runs):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [], name="x")
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
        count = v1.train.get_or_create_global_step().assign_add(1)
        with tf.control_dependencies([weight.assign_add(x)]):
            after = tf.identity(weight.read_value(), name="after")
        rate = tf.constant(0.5, name="rate")
        hooks = hooks_of(x, after, rate)
        with train.MonitoredSession(hooks=hooks) as session:
            return [session.run([count, after], {x: 2.0}) for _ in range(runs)], hooks


def test_hook_gets_what_it_asks_for_in_each_run():
    def hooks_of(x, after, rate):
        args = v1.train.SessionRunArgs
        return [
            Asks(lambda run: args(after)),
            Asks(lambda run: args({"after": after, "rates": [rate]})),
            Asks(lambda run: args(after if run % 2 else rate)),
            Asks(lambda run: args(after if run < 5 else rate)),
        ]

    results, hooks = trained(hooks_of, 8)
    assert results == [[run, 2.0 * run] for run in range(1, 9)]
    seen = [[result for result, *_ in hook.seen] for hook in hooks]
    assert seen == [
        [2.0 * run for run in range(1, 9)],
        [{"after": 2.0 * run, "rates": [0.5]} for run in range(1, 9)],
        [2.0 * run if run % 2 else 0.5 for run in range(1, 9)],
        [2.0 * run if run < 5 else 0.5 for run in range(1, 9)],
    ]


def test_options_that_a_hook_gives_in_some_runs_trace_these_runs():
    def hooks_of(x, after, rate):
        traces = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        return [
            Asks(lambda run: v1.train.SessionRunArgs(after, options=traces if run == 5 else None)),
            Asks(lambda run: v1.train.SessionRunArgs(rate)),
        ]

    results, hooks = trained(hooks_of, 8)
    assert results == [[run, 2.0 * run] for run in range(1, 9)]
    full = v1.RunOptions.FULL_TRACE
    levels = [(full, True) if run == 5 else (0, False) for run in range(1, 9)]
    assert [hook.seen for hook in hooks] == [
        [(2.0 * run, *levels[run - 1]) for run in range(1, 9)],
        [(0.5, *levels[run - 1]) for run in range(1, 9)],
    ]


def test_tensor_that_the_caller_feeds_may_not_be_fed_by_a_hook_later():
    def hooks_of(x, after, rate):
        return [Asks(lambda run: v1.train.SessionRunArgs(after, {x: 1.0} if run == 6 else None))]

    with pytest.raises(RuntimeError, match="Same tensor is fed"):
        trained(hooks_of, 8)


def test_hook_asks_a_session_that_has_every_attribute():
    """As a mock has in a test of somebody's loop."""
    mocked = mock.MagicMock(graph=tf.Graph())
    found = session_of(mocked)
    assert found.adopted is mocked
    assert found is session_of(mocked)
