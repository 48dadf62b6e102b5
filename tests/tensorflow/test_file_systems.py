"""A ``tf.Graph`` trains in TensorFlow's own file systems, such as ``ram://``."""

from uuid import uuid4

import pytest
import tensorflow
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

import runhooks as rh
from runhooks import events
from runhooks.tensorflow import train

tf = tensorflow.compat.v1
gfile = tensorflow.io.gfile


@pytest.fixture(autouse=True)
def no_writers():
    yield
    tf.summary.FileWriterCache.clear()
    rh.summary.FileWriterCache.clear()


class Ram(MemoryFileSystem):
    """What fsspec knows as the scheme that TensorFlow keeps in a memory of its own."""

    protocol = "ram"
    store = {}  # noqa: RUF012 - of the class, as its parent's
    pseudo_dirs = [""]  # noqa: RUF012


@pytest.fixture
def ram(monkeypatch):
    """A directory that is not there yet: checkpoints and event files are on two sides."""
    monkeypatch.setitem(known_implementations, "ram", {"class": f"{__name__}.Ram"})
    return f"ram://{uuid4()}/run"


class Counts(rh.SessionRunHook):
    """Counts runs, over all sessions."""

    runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1

    def state_dict(self):
        return {"runs": self.runs}

    def load_state_dict(self, state):
        self.runs = state["runs"]


def run_until(last_step, directory, library=train, hooks=(), **options):
    """Train until ``last_step``; return the step that the session started at."""
    with tensorflow.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        tf.summary.scalar("half", weight)
        train_op = tf.group(weight.assign_add(0.5), step.assign_add(1))
        with library.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[*hooks, library.StopAtStepHook(last_step=last_step)],
            save_summaries_steps=1,
            **options,
        ) as session:
            started = session.run(step)
            while not session.should_stop():
                session.run(train_op)
    return started


def test_a_training_resumes_where_its_checkpoint_is(ram):
    counts = Counts()
    run_until(3, ram, hooks=[counts])
    assert tf.train.latest_checkpoint(ram) == f"{ram}/model.ckpt-3"
    resumed = Counts()
    assert run_until(6, ram, hooks=[resumed]) == 3
    assert resumed.runs > counts.runs
    scalars = events.read(ram).only.scalars["half"]
    assert scalars.steps.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert events.read(ram).only.graph is not None
    assert gfile.exists(f"{ram}/graph.pbtxt")


@pytest.mark.parametrize(("first", "second"), [(train, tf.train), (tf.train, train)])
def test_tensorflow_goes_on_where_we_stop_and_the_other_way_round(first, second, ram):
    run_until(3, ram, first)
    assert run_until(5, ram, second) == 3


def test_states_of_hooks_go_with_their_checkpoints(ram):
    saver = {"save_checkpoint_secs": None, "save_checkpoint_steps": 1}
    gfile.makedirs(f"{ram}/git.hooks")  # somebody else's
    gfile.copy(__file__, f"{ram}/git.hooks/commit")
    run_until(9, ram, hooks=[Counts()], **saver)
    assert gfile.exists(f"{ram}/git.hooks/commit")
    kept = {name.removesuffix(".index") for name in gfile.listdir(ram) if name.endswith(".index")}
    states = {
        name.rstrip("/") for name in gfile.listdir(ram) if ".hooks" in name and "ckpt" in name
    }
    assert states == {f"{name}.hooks" for name in kept}
    assert len(kept) == 5


def test_states_that_are_damaged_are_left_out_with_a_warning(ram, caplog):
    run_until(2, ram, hooks=[Counts()])
    (file,) = gfile.glob(f"{ram}/model.ckpt-2.hooks/checkpoint.safetensors")
    gfile.remove(file)
    with gfile.GFile(file, "wb") as damaged:
        damaged.write(b"half")
    again = Counts()
    assert run_until(4, ram, hooks=[again]) == 2
    assert "hooks start over: their saved states are damaged" in caplog.text
    assert again.runs < 6


@pytest.mark.parametrize("url", ["s3://bucket/run", "memory://run", "nobody://knows"])
def test_checkpoints_where_tensorflow_cannot_write_are_refused_at_once(url):
    with pytest.raises(ValueError, match=f"'{url}'.*ram://.*tensorflow_io"):
        run_until(1, url)


def test_summaries_go_where_runhooks_can_write(tmp_path):
    url = f"memory://{uuid4()}/run"
    run_until(3, tmp_path, summary_dir=url)
    assert events.read(url).only.scalars["half"].steps.tolist() == [0, 1, 2, 3]
    assert tf.train.latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-3"
