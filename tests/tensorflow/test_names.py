"""``runhooks.tensorflow.train`` has all that ``tf.compat.v1.train`` has, with its arguments."""

import inspect
import subprocess
import sys

import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import estimator, train

tf = tensorflow.compat.v1

#: What sessions are made of: these are of runhooks.
REPLACED = [
    name
    for name in dir(tf.train)
    if name.endswith(("Hook", "Session", "Creator", "Timer", "Thread", "Listener"))
    or name.startswith("SessionRun")
    or name in ("Scaffold", "Coordinator", "NanLossDuringTrainingError")
]
ESTIMATOR = [
    *("CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook"),
    *("GlobalStepWaiterHook", "LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook"),
    *("ProfilerHook", "SecondOrStepTimer", "SessionRunArgs", "SessionRunContext"),
    *("SessionRunHook", "SessionRunValues", "StepCounterHook", "StopAtStepHook"),
    "SummarySaverHook",
]
EXPERIMENTAL = [
    *("make_early_stopping_hook", "stop_if_higher_hook", "stop_if_lower_hook"),
    *("stop_if_no_decrease_hook", "stop_if_no_increase_hook"),
]


@pytest.mark.parametrize("name", [n for n in dir(tf.train) if not n.startswith("_")])
def test_every_name_is_there(name):
    ours = getattr(train, name)
    assert (ours is getattr(tf.train, name)) == (name not in REPLACED)
    assert name in dir(train)


@pytest.mark.parametrize("name", [*ESTIMATOR, *EXPERIMENTAL])
def test_hooks_of_the_former_estimator_are_there(name):
    home = estimator if name in ESTIMATOR else estimator.experimental
    assert getattr(home, name) is getattr(train, name)


def test_estimator_has_its_hooks_and_nothing_else():
    assert estimator.__all__ == sorted([*ESTIMATOR, "experimental"])
    assert sorted(vars(estimator.experimental)) == EXPERIMENTAL
    for module in (estimator, train):
        with pytest.raises(AttributeError, match=r"'RunConfig': tf.estimator is gone"):
            module.RunConfig  # noqa: B018
        with pytest.raises(AttributeError, match="'InMemoryEvaluatorHook': .* EvaluationHook"):
            module.InMemoryEvaluatorHook  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'SessionRunHook'"):
        estimator.SessionRunHok  # noqa: B018
    with pytest.raises(AttributeError, match="Nothing"):
        train.Nothing  # noqa: B018


@pytest.mark.parametrize("name", sorted({*REPLACED} - {"NanLossDuringTrainingError"}))
def test_arguments_are_tensorflows_and_come_first(name):
    theirs = list(inspect.signature(getattr(tf.train, name)).parameters.values())
    ours = list(inspect.signature(getattr(train, name)).parameters.values())
    assert [p.name for p in ours[: len(theirs)]] == [p.name for p in theirs]
    for one, other in zip(theirs, ours, strict=False):
        if isinstance(one.default, int | float | bool | None) and one.default is not inspect._empty:
            assert (one.name, other.default) == (one.name, one.default)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_missing_extra_is_one_sentence():
    told = python("import sys; sys.modules['tensorflow'] = None\nimport runhooks.tensorflow")
    assert told.stderr.splitlines()[-1] == (
        "ImportError: the tensorflow engine needs tensorflow: pip install 'runhooks[tensorflow]'"
    )


def test_other_engines_load_no_tensorflow():
    code = """
import sys, runhooks as rh
for engine in ("python", "jax"):
    with rh.Graph(engine).as_default():
        step = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=1)]) as session:
            session.run(step)
print("tensorflow" in sys.modules)
"""
    assert python(code).stdout == "False\n"


def test_graph_of_an_own_engine_is_no_graph_of_tensorflows():
    with (
        rh.Graph().as_default(),
        pytest.raises(ValueError, match="master must .* directory is given as checkpoint_dir="),
    ):
        train.MonitoredTrainingSession(master="grpc://localhost:1")


def test_own_variable_in_a_tensorflow_graph_says_what_to_do():
    with tensorflow.Graph().as_default(), pytest.raises(TypeError, match=r"rh\.Graph\(\)"):
        rh.Variable(1.0, name="w")


def test_two_engines_train_in_one_process(tmp_path):
    with rh.Graph().as_default() as own:
        step = rh.train.get_or_create_global_step().assign_add(1)
    with tensorflow.Graph().as_default():
        op = tf.assign_add(tf.train.create_global_step(), 1)
        theirs = train.MonitoredSession(hooks=[rh.StepCounterHook(1, output_dir=tmp_path / "t")])
    with own.as_default():
        ours = rh.MonitoredSession(hooks=[rh.StepCounterHook(1, output_dir=tmp_path / "p")])
    for _ in range(3):
        theirs.run(op)
        ours.run(step)
    assert (theirs.global_step, ours.global_step) == (3, 3)
    theirs.close()
    ours.close()


@pytest.mark.parametrize(
    ("fetches", "feeds", "meant"),
    [
        ("losss", {}, "'loss'"),
        ({"a": ["losss:0"]}, {}, "'loss:0'"),
        ("loss:0", {"xx:0": 1}, "'x:0'"),
    ],
)
def test_misspelt_names_are_answered_with_those_that_may_be_meant(fetches, feeds, meant):
    with tf.Graph().as_default():
        tf.identity(tf.placeholder(tf.float32, [], "x"), name="loss")
        with train.MonitoredSession() as session:
            with pytest.raises((TypeError, ValueError)) as caught:
                session.run(fetches, feeds)
            assert f"did you mean {meant}?" in caught.value.__notes__[0]
        with pytest.raises(KeyError) as caught:
            train.MonitoredSession(hooks=[train.LoggingTensorHook(["losss"], every_n_iter=1)])
        assert "did you mean 'loss'?" in caught.value.__notes__[0]
