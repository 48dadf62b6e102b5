"""The bridge to Keras on its backends: what hooks see of a training, and what they do to it.

Keras has one backend in a process, so ``keras_program.py`` trains in a process for each.
"""

import json
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("keras_program.py")
ON_ONE = [
    *("resume", "exceptions", "stop", "several_steps", "load_weights", "validation", "refused"),
    *("docs", "left", "counts", "same_paths"),
]


@pytest.fixture(scope="module")
def scenes(request, tmp_path_factory):
    """Returns what the program has found on a backend; it runs once on each, also if it fails."""
    folder = tmp_path_factory.mktemp("keras")

    @cache
    def status(backend):
        launcher = request.getfixturevalue(f"{backend}_launcher")
        names = ["curve", "finished", *{"tensorflow": ON_ONE}.get(backend, [])]
        log, output = folder / f"{backend}.log", folder / f"{backend}.json"
        return launcher.wait(launcher.start(log, PROGRAM, output, *names))

    def scenes(backend):
        assert status(backend) == 0, (folder / f"{backend}.log").read_text()
        return json.loads((folder / f"{backend}.json").read_text())

    return scenes


@pytest.fixture(params=["tensorflow", "jax"])  # that of torch takes arrays as they are
def curve(scenes, request):
    return scenes(request.param)["curve"]


@pytest.fixture
def on_one(scenes):
    return scenes("tensorflow")


def test_a_batch_is_a_run(curve):
    assert curve["steps"] == list(range(1, 17))
    assert curve["calls"] == ["begin", "session 0", "end 16"]


def test_values_are_those_of_kerass_own_loggers(curve):
    assert curve["loss"] == curve["keras_loss"]
    assert curve["accuracy"] == curve["keras_accuracy"]
    assert [curve["loss"][7], curve["loss"][15]] == curve["keras_epochs"]


def test_output_dir_gets_the_curve(curve):
    assert curve["tags"] == ["learning_rate", "loss", "metrics/accuracy"]
    assert curve["events"] == [[i + 1, pytest.approx(it)] for i, it in enumerate(curve["loss"])]


def test_weights_are_those_after_the_batch_and_a_hook_assigns_the_learning_rate(curve):
    assert curve["rate"] == [pytest.approx(0.001)] * 10 + [0.0] * 6
    assert len(set(curve["kernel"][:10])) == 10
    assert set(curve["kernel"][9:]) == {curve["keras_kernel"]}


def test_a_training_resumes_in_mid_epoch_with_the_states_of_the_hooks(on_one):
    resume = on_one["resume"]
    assert resume["first"] == list(range(1, 13))
    # Keras's backup of step 10, in the second epoch, which Keras then starts over.
    assert resume["second"] == list(range(11, 19))
    assert resume["runs"] == 10 + 8
    assert resume["calls"] == [
        *("begin", "session 0", "on_exception "),
        *("begin", "session 10", "end 18"),
    ]


def test_the_global_step_counts_batches_over_fits_and_resumes_whatever_the_optimizer_counts(on_one):
    assert on_one["counts"] == {
        "fits": [[3, 18], [19, 26], [27, 42]],  # after 8 batches, which the optimizer counts as 2
        "compiled": [1, 16],
        "loaded": [17, 32],
        "cut_off": [1, 8],
        "resumed": [9, 16],
    }


@pytest.mark.parametrize("place", ["batch", "hook", "callback"])
def test_hooks_hear_of_exceptions(on_one, place):
    found = on_one["exceptions"][place]
    assert found["raised"] == f"a bad {place}"
    assert found["calls"] == ["begin", "session 0", f"on_exception a bad {place}"]


def test_a_training_that_fails_leaves_nothing_to_the_next(on_one):
    left = on_one["left"]
    assert left["restored"] == dict.fromkeys(["hook", "same", "other", "two"], True)
    failed = ["begin", "session"]
    assert left["calls"] == [
        *(*failed, "same", "on_exception", "begin", "session", "end"),
        *(*failed, "other", "on_exception"),
    ]


def test_request_stop_makes_the_batch_the_last(on_one):
    assert on_one["stop"] == {"iterations": 11, "steps": list(range(1, 12))}


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])  # each has its own fit
def test_a_finished_training_that_is_started_again_makes_no_update(scenes, backend):
    finished = scenes(backend)["finished"]
    assert finished["steps"] == list(range(1, 8))
    assert finished["calls"] == [
        *("begin", "session 0", "end 5"),
        *("begin", "session 5", "end 5"),
        *("begin", "session 5", "end 7"),
    ]
    values, validated = ["accuracy", "loss"], ["val_accuracy", "val_loss"]
    assert finished["logs"] == [values] * 5 + [[]] + [values] * 2
    assert finished["found"] == [
        [5, values + validated],
        [5, validated],
        [7, values + validated],
    ]
    assert finished["then"] == 7 + 8  # a training without hooks passes over nothing


def test_a_validation_stops_the_training_where_kerass_early_stopping_does(on_one):
    assert on_one["validation"] == {"ours": 3, "theirs": 3, "steps": [8, 16, 24]}


def test_weights_of_one_path_are_numbered(on_one):
    found = on_one["same_paths"]
    codes = ["code/bias", "code/bias_1", "code/kernel", "code/kernel_1"]
    assert found["all"] == [*codes, "head/bias", "head/kernel"]
    assert found["same"] == [True, True]


def test_several_steps_per_execution_are_one_run(on_one):
    assert on_one["several_steps"]["steps"] == [2, 4, 6, 8]


def test_weights_of_a_checkpoint_callback_bring_the_states_back(on_one):
    found = on_one["load_weights"]
    assert found["steps"] == list(range(7, 15))
    assert found["runs"] == 14
    assert found["plain"] == 6  # weights with states load without the callback


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gradients", "its train step keeps gradients and activations to itself"),
        ("feed", "a hook cannot feed the batches of Keras"),
        ("feed_fn", "a hook cannot feed the batches of Keras"),
        ("checkpoints", "let Keras save its checkpoints, which hold the states of the hooks too"),
    ],
)
def test_what_a_hook_may_not_do_is_said_before_the_first_batch(on_one, asked, message):
    said, iterations = on_one["refused"][asked]
    assert message in said
    assert iterations == 0


def test_the_docs_show_what_runs(on_one):
    assert on_one["docs"]["iterations"] == 16
    assert 1 in on_one["docs"]["steps"]
