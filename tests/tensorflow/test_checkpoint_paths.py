"""One directory may be spelled in several ways: no checkpoint is deleted before its time."""

from pathlib import Path

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1

SPELLINGS = [
    ("./ck", "./ck"),
    ("./ck", "ck"),
    ("ck", "./ck"),
    ("ck", "ck/"),
    ("./ck/", "ck"),
    ("x/../ck", "ck"),
    ("{here}/ck", "ck"),
    ("ck", "{here}/ck"),
]


def run_until(last_step, library, directory):
    with tensorflow.Graph().as_default():
        train_op = tf.train.get_or_create_global_step().assign_add(1)
        session = library.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=library.Scaffold(saver=tf.train.Saver(max_to_keep=2)),
            hooks=[library.StopAtStepHook(last_step=last_step)],
            save_checkpoint_secs=None,
            save_checkpoint_steps=1,
            save_summaries_steps=None,
            log_step_count_steps=None,
        )
        with session:
            while not session.should_stop():
                session.run(train_op)


def kept(directory):
    return sorted(path.stem for path in Path(directory).glob("*.index"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("first", [train, tf.train], ids=["ours", "TensorFlow's"])
@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_resumed_under_another_spelling(first, one, other, here):
    run_until(3, first, one.format(here=here))
    assert kept("ck") == ["model.ckpt-2", "model.ckpt-3"]
    run_until(4, train, other.format(here=here))
    assert kept("ck") == ["model.ckpt-3", "model.ckpt-4"]


@pytest.mark.parametrize("spelling", ["./ck", "ck/", "./ck/", "x/../ck", "{here}/ck"])
def test_resumed_by_tensorflow(spelling, here):
    spelling = spelling.format(here=here)
    run_until(3, train, spelling)
    run_until(4, tf.train, spelling)
    assert kept("ck") == ["model.ckpt-3", "model.ckpt-4"]
