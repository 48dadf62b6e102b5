"""Checks of arguments: each names the argument, the rule and the value."""

import math
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks import arguments


def test_what_is_right_or_not_given_passes():
    arguments.exactly_one(a=None, b=0)
    arguments.given(a=0)
    arguments.positive(a=0.5, b=None, c=np.float32(2), d=math.inf)
    arguments.not_negative(a=0, b=None)
    arguments.whole(a=1, b=np.int64(5), c=None)
    arguments.whole(0, a=0)
    arguments.finite(a=-1.5, b=None)
    arguments.function(a=len, b=None)
    arguments.instance(rh.Trigger, a=rh.Trigger(at_end=True), b=None)
    arguments.directory(a="runs", b=Path("runs"), c=None)


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (lambda: arguments.exactly_one(a=1, b=2), ValueError, "a=1 and b=2"),
        (lambda: arguments.exactly_one(a=None, b=None, c=None), ValueError, "a, b and c .*none"),
        (lambda: arguments.given(a=None), TypeError, "a .*None"),
        (lambda: arguments.positive(a="1"), TypeError, "a .*'1'"),
        (lambda: arguments.positive(a=True), TypeError, "a .*True"),
        (lambda: arguments.positive(a=0), ValueError, "a .*0, got 0"),
        (lambda: arguments.positive(a=math.nan), ValueError, "a .*nan"),
        (lambda: arguments.not_negative(a=-1), ValueError, "a .*-1"),
        (lambda: arguments.whole(a=1.5), TypeError, r"a .*1\.5"),
        (lambda: arguments.whole(a=0), ValueError, "a .*0, got 0"),
        (lambda: arguments.whole(0, a=-1), ValueError, "a .*-1"),
        (lambda: arguments.finite(a=math.inf), ValueError, "a .*inf"),
        (lambda: arguments.function(a=5), TypeError, "a .*5"),
        (lambda: arguments.instance(rh.Trigger, a=5), TypeError, "a .*Trigger.*5"),
        (lambda: arguments.directory(a=5), TypeError, "a .*5"),
        (lambda: arguments.directory(a=""), ValueError, "a .*empty"),
    ],
)
def test_what_is_wrong_is_named_with_the_rule(check, error, message):
    with pytest.raises(error, match=message):
        check()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: rh.TimeLimitHook("1"), "secs"),
        (lambda: rh.TimeLimitHook(None), "secs"),
        (lambda: rh.WatchdogHook("a"), "secs"),
        (lambda: rh.WatchdogHook(None), "secs"),
        (lambda: rh.WatchdogHook(math.inf), "secs"),
        (lambda: rh.GlobalStepWaiterHook(None), "wait_until_step"),
        (lambda: rh.GlobalStepWaiterHook(1.5), "wait_until_step"),
        (lambda: rh.ProgressHook("5"), "last_step"),
        (lambda: rh.ProgressHook(every_n_steps=None), "every_n_steps"),
        (lambda: rh.ProgressHook(stream="out.txt"), "stream"),
        (lambda: rh.HookTimesHook("1"), "every_n_steps"),
        (lambda: rh.GarbageCollectionHook("a"), "every_n_steps"),
        (lambda: rh.LoggingTensorHook(["x"], every_n_iter=1.5), "every_n_iter"),
        (lambda: rh.LoggingTensorHook(["x"], every_n_secs="a"), "every_n_secs"),
        (lambda: rh.LoggingTensorHook(["x"], every_n_iter=1, formatter="x"), "formatter"),
        (lambda: rh.NanTensorHook("loss", trigger=5), "trigger"),
        (lambda: rh.ThroughputHook(True), "examples"),
        (lambda: rh.Saver(max_to_keep="a"), "max_to_keep"),
        (lambda: rh.Saver(keep=rh.KeepLast(2)), "keep"),
        (lambda: rh.Trigger(on_steps=("a",)), "on_steps"),
        (lambda: rh.Trigger(on_steps=5), "on_steps"),
        (lambda: rh.Trigger(every_steps=1.5), "every_steps"),
        (lambda: rh.Trigger(at_end="no"), "at_end"),
        (lambda: rh.SecondOrStepTimer(every_steps="a"), "every_steps"),
        (lambda: rh.EvaluationHook({"a": "b"}, every_n_steps=1, steps="a"), "steps"),
        (lambda: rh.stop_if_higher_hook(None, "acc", None, "dir"), "threshold"),
        (lambda: rh.stop_if_higher_hook(None, None, 1.0, "dir"), "metric_name"),
        (lambda: rh.stop_if_higher_hook(None, "acc", 1.0, "dir", -4), "min_steps"),
        (lambda: rh.stop_if_no_increase_hook(None, "acc", "5", "dir"), "max_steps_without_incr"),
        (lambda: rh.MonitoredSession(stop_grace_period_secs="a"), "stop_grace_period_secs"),
        (lambda: rh.placeholder(shape=5), "shape"),
        (lambda: rh.placeholder(shape=(-1,)), "shape"),
        (lambda: rh.placeholder_with_default(0.0, shape=(-1,)), "shape"),
        (lambda: rh.call(len, [], num_outputs="2"), "num_outputs"),
        (lambda: rh.RecoveryPolicy(first_wait_secs=5, longest_wait_secs=1), "longest_wait_secs"),
        (lambda: rh.Scaffold(saver=5), "saver"),
    ],
)
def test_public_classes_name_the_argument_that_is_wrong(make, name):
    with rh.Graph().as_default(), pytest.raises((TypeError, ValueError), match=f"^{name}"):
        make()
