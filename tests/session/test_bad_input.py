"""Bad input: each mistake has one clear error, and nothing that was saved is lost by it."""

import logging
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints
from runhooks.testing import RecordingHook


def restored_step(model, directory):
    with rh.SingularMonitoredSession(checkpoint_dir=directory) as sess:
        step = sess.global_step
        np.testing.assert_array_equal(sess.run(model.weights), [step, step])
    return step


@pytest.fixture
def train(model, tmp_path):
    """Trains ``steps`` steps in the directory of the test, a checkpoint at each."""

    def run(steps, **kwargs):
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=1, **kwargs
        ) as sess:
            for _ in range(steps):
                sess.run(model.train_op)

    return run


# wrong requests


@pytest.fixture
def images(model):
    return rh.placeholder("images", dtype=np.float32, shape=(None, 2))


@pytest.fixture
def foreign(engine):
    with rh.Graph(engine=engine).as_default():
        return rh.placeholder("foreign")


REQUESTS = {
    "unknown fetch": (lambda x, foreign: ("imags:0", None), ["fetches", "'imags:0'", "'images:0'"]),
    "unknown feed": (
        lambda x, foreign: (x, {"imags:0": 1}),
        ["feed_dict", "'imags:0'", "'images:0'"],
    ),
    "unfed placeholder": (lambda x, foreign: (x * 2, None), ["'images:0'", "feed_dict"]),
    "foreign fetch": (lambda x, foreign: (foreign, None), ["fetches", "'foreign:0'", "graph"]),
    "foreign feed": (lambda x, f: (x, {f: 1}), ["feed_dict", "'foreign:0'", "graph"]),
    "a list of feeds": (lambda x, foreign: (x, [1, 2]), ["feed_dict must map", "[1, 2]"]),
    "an array of feeds": (lambda x, foreign: (x, np.ones(3)), ["feed_dict must map", "1., 1., 1."]),
    "a number for feeds": (lambda x, foreign: (x, 5), ["feed_dict must map", "got 5"]),
    "wrong shape": (
        lambda x, foreign: (x, {x: np.ones((1, 3), np.float32)}),
        ["'images:0'", "[1, 3]", "[any, 2]"],
    ),
    "wrong dtype": (
        lambda x, foreign: (x, {x: np.ones((1, 2), np.complex64)}),
        ["'images:0'", "complex64", "float32"],
    ),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_wrong_request_says_what_is_wrong_and_the_loop_can_go_on(
    request_name, model, images, foreign
):
    build, shown = REQUESTS[request_name]
    fetches, feeds = build(images, foreign)
    hook = RecordingHook(fetches=model.loss)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        with pytest.raises((TypeError, ValueError)) as caught:
            sess.run([fetches, model.train_op], feeds)
        for part in shown:
            assert part in str(caught.value)
        assert sess.global_step == 1
        sess.run(model.train_op)
    assert hook.results == [0.0, 2.0]


def test_unknown_fetch_of_a_hook_names_the_hook(model):
    with pytest.raises(ValueError, match=r"(?s)'los:0'.*RecordingHook"):
        with rh.MonitoredSession(hooks=[RecordingHook(fetches="los:0")]) as sess:
            sess.run(model.train_op)


def test_what_before_run_returns_must_be_run_args(model):
    class Returns(rh.SessionRunHook):
        def before_run(self, run_context):
            return model.loss

    with pytest.raises(TypeError, match=r"(?s)SessionRunArgs.*Returns"):
        with rh.MonitoredSession(hooks=[Returns()]) as sess:
            sess.run(model.train_op)


# directories and checkpoints


def test_directory_that_cannot_be_made_is_an_error_naming_it(model, tmp_path):
    (tmp_path / "file").write_text("in the way")
    directory = tmp_path / "file" / "run"
    with pytest.raises(OSError, match="file") as caught:
        rh.MonitoredTrainingSession(checkpoint_dir=directory)
    assert str(directory) in str(caught.value)


def newest(directory):
    return Path(checkpoints(directory)[-1])


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "cut short": lambda folder: cut(folder / "checkpoint.safetensors"),
    "a bit of an array flipped": lambda folder: flip(folder / "checkpoint.safetensors"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_newest_checkpoint_is_named_once_and_the_one_before_is_taken(
    damage, model, train, tmp_path, caplog
):
    train(3)
    damaged = newest(tmp_path)
    DAMAGE[damage](damaged)
    caplog.clear()
    assert restored_step(model, tmp_path) == 2
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert str(damaged) in warnings[0]


def test_all_checkpoints_damaged_is_an_error_and_not_a_fresh_start(model, train, tmp_path):
    train(2)
    for path in checkpoints(tmp_path):
        cut(Path(path) / "checkpoint.safetensors")
    with pytest.raises(rh.errors.DataLossError, match=str(tmp_path)):
        restored_step(model, tmp_path)
    assert len(list(tmp_path.glob("model.ckpt-*"))) == 3  # they are left as they are


OTHER_MODELS = {
    "another name": (lambda: rh.Variable(np.zeros(2, np.float32), name="kernel"), "kernel"),
    "another shape": (lambda: rh.Variable(np.zeros(3, np.float32), name="weights"), "float32[3]"),
    "another dtype": (lambda: rh.Variable(np.zeros(2, np.int32), name="weights"), "int32"),
}


@pytest.mark.parametrize("other", OTHER_MODELS)
def test_checkpoint_of_another_model_is_an_error_and_stays(other, engine, model, train, tmp_path):
    build, shown = OTHER_MODELS[other]
    train(2)
    before = sorted(tmp_path.glob("model.ckpt-*/*"))
    with rh.Graph(engine=engine).as_default():
        rh.train.create_global_step()
        build()
        with pytest.raises(ValueError, match="weights") as caught:
            rh.MonitoredTrainingSession(checkpoint_dir=tmp_path)
    said = "\n".join([str(caught.value), *caught.value.__notes__])
    assert shown in said
    assert str(newest(tmp_path)) in said
    assert sorted(tmp_path.glob("model.ckpt-*/*")) == before
    assert restored_step(model, tmp_path) == 2


# a hook that raises


class Broken(RecordingHook):
    def __init__(self, phase):
        super().__init__()
        self.phase = phase

    def record(self, method):
        super().record(method)
        if method == self.phase:
            raise ValueError("the hook is broken")


@pytest.mark.parametrize(
    ("phase", "kept"),
    [("begin", 2), ("after_create_session", 2), ("before_run", 2), ("after_run", 2), ("end", 3)],
)
def test_hook_that_raises_loses_nothing_that_was_saved(phase, kept, model, train, tmp_path):
    train(2)
    with pytest.raises(ValueError, match="the hook is broken") as caught:
        train(1, hooks=[Broken(phase)])
    assert any("Broken" in note and phase in note for note in caught.value.__notes__)
    assert checkpoint_step(newest(tmp_path)) == kept
    assert restored_step(model, tmp_path) == kept


# at the wrong moment


def test_what_only_a_raw_session_has_is_told_how_to_get(model):
    with rh.MonitoredSession() as sess:
        with pytest.raises(AttributeError, match=r"run\(x, hooks=False\).*run_step_fn") as caught:
            sess.read("weights")
        assert "has no 'read'" in str(caught.value)


@pytest.mark.parametrize("make", [rh.MonitoredSession, rh.MonitoredTrainingSession])
def test_a_method_that_nobody_calls_is_noticed_once(model, caplog, make):
    class Misspelled(rh.SessionRunHook):
        def aftr_run(self, run_context, run_values):
            pass

        def before(self):
            """Is nothing like the name of a method of hooks."""

    with make(hooks=[Misspelled(), RecordingHook()]):
        pass
    assert [it.getMessage() for it in caplog.records if it.levelname == "WARNING"] == [
        "Misspelled.aftr_run is no method of a hook, and is never called: did you mean after_run?"
    ]


def test_a_scalar_that_cannot_change_is_noticed(model, caplog):
    rh.summary.scalar("weights", np.ones(()))
    assert "summary 'weights' is of an array, so that each run writes the same" in caplog.text
    caplog.clear()
    rh.summary.scalar("loss", model.loss)
    rh.summary.scalar("limit", 0.5)
    assert not caplog.records


def test_a_state_may_be_fed_again_and_again_and_as_a_number():
    graph = rh.graph(lambda w, x: w + x, w=np.array(0.0))
    with rh.Session(graph) as session:
        for w in (np.array(1.0), np.array(2.0), 3.0):
            session.run("train_op", {"w": w, "x": 1.0})
            assert session.run("w") == w + 1
