"""A directory has checkpoints of TensorFlow's saver, or of ours: each session knows the other's."""

import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow

import runhooks as rh
from runhooks.cli import main
from runhooks.tensorflow import train

tf = tensorflow.compat.v1


def train_on_tensorflow(library, directory, last_step, **scaffold):
    """Train with the sessions of ``library``; return the weights."""
    with tensorflow.Graph().as_default():
        weights = tf.get_variable("weights", initializer=np.zeros(2, np.float32))
        step = tf.train.get_or_create_global_step().assign_add(1)
        new_weights = weights.assign_add([1, 1]).value()
        session = library.MonitoredTrainingSession(
            checkpoint_dir=str(directory),
            scaffold=library.Scaffold(**scaffold),
            hooks=[library.StopAtStepHook(last_step=last_step)],
            save_checkpoint_secs=None,
            save_checkpoint_steps=2,
        )
        with session:
            while not session.should_stop():
                _, found = session.run([step, new_weights])
    return found


def train_on_numpy(directory, last_step, session=rh.MonitoredTrainingSession):
    """Train on the python engine; return the number of runs."""
    runs = 0
    with rh.Graph().as_default():
        weights = rh.Variable(np.zeros(2, np.float32), name="weights")
        step = rh.train.get_or_create_global_step()
        op = rh.group(weights.assign(weights + 1), step.assign_add(1))
        with session(
            checkpoint_dir=directory, hooks=[rh.StopAtStepHook(last_step=last_step)]
        ) as opened:
            while not opened.should_stop():
                opened.run(op)
                runs += 1
    return runs


def names_in(directory):
    return sorted(it.name for it in directory.iterdir() if "tfevents" not in it.name)


@pytest.mark.parametrize("library", [train, tf.train], ids=["ours", "TensorFlow's"])
@pytest.mark.parametrize("session", [rh.MonitoredTrainingSession, rh.SingularMonitoredSession])
def test_a_session_of_another_engine_does_not_start_over(library, session, tmp_path):
    train_on_tensorflow(library, tmp_path, 5)
    before = names_in(tmp_path)
    with pytest.raises(
        ValueError, match=r"tf\.Graph.*load_checkpoint\('.*model\.ckpt-5'\)"
    ) as info:
        train_on_numpy(tmp_path, 9, session)
    assert str(tmp_path) in str(info.value)
    assert names_in(tmp_path) == before


def test_a_session_of_tensorflow_does_not_start_over(tmp_path):
    train_on_numpy(tmp_path / "ours", 5)
    before = names_in(tmp_path / "ours")
    with pytest.raises(ValueError, match="model.ckpt-0'.*tf.Graph.*InitFrom"):
        train_on_tensorflow(train, tmp_path / "ours", 9)
    assert set(names_in(tmp_path / "ours")) <= {*before, "graph.pbtxt"}
    # What the error advises:
    init = rh.InitFrom(tmp_path / "ours")
    weights = train_on_tensorflow(train, tmp_path / "new", 1, init_from=init)
    assert weights.tolist() == [6, 6]


def test_a_directory_with_checkpoints_of_both_goes_on_with_its_own(tmp_path):
    train_on_numpy(tmp_path / "ours", 5)
    train_on_tensorflow(train, tmp_path, 4)
    shutil.copytree(tmp_path / "ours" / "model.ckpt-5", tmp_path / "model.ckpt-5")
    assert train_on_numpy(tmp_path, 7) == 2
    assert train_on_tensorflow(train, tmp_path, 6).tolist() == [6, 6]


def test_what_only_looks_like_a_checkpoint_is_no_hindrance(tmp_path):
    (tmp_path / "vectors.index").write_bytes(b"of another program")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "model.safetensors").write_text("{}")
    shutil.copytree(tmp_path, tmp_path / "tensorflow")
    assert train_on_numpy(tmp_path, 3) == 3
    train_on_tensorflow(train, tmp_path / "tensorflow", 3)


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command; its status, its output and its messages."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["runhooks", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capsys.readouterr())

    on_broken_pipe = signal.getsignal(signal.SIGPIPE)
    yield command
    signal.signal(signal.SIGPIPE, on_broken_pipe)


@pytest.fixture
def saved(tmp_path):
    """A directory with checkpoints of TensorFlow, and the states of hooks beside them."""
    train_on_tensorflow(train, tmp_path, 5)
    assert (tmp_path / "model.ckpt-5.hooks").is_dir()
    return tmp_path


def test_states_of_hooks_are_no_checkpoint(saved):
    assert rh.train.latest_checkpoint(saved) is None
    with pytest.raises(rh.errors.NotFoundError):
        rh.best_checkpoint(saved, "loss")


@pytest.mark.parametrize("name", ["", "model.ckpt-5", "model.ckpt-5.hooks"])
def test_load_and_the_command_say_what_reads_the_checkpoint(name, saved, command):
    path = str(saved / "model.ckpt-5")
    with pytest.raises(rh.errors.NotFoundError, match="TensorFlow|hooks") as info:
        rh.load(saved / name)
    assert f"tf.train.load_checkpoint({path!r})" in str(info.value)
    assert tf.train.load_checkpoint(path).get_tensor("weights").tolist() == [5, 5]
    status, _, errors = command("checkpoints", saved / name)
    assert status == 2
    assert "tf.train.load_checkpoint" in errors
