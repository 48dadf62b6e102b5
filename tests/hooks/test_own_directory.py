"""The directory of a hook of one's own: its curves have each step once, whatever interrupts."""

import multiprocessing

import numpy as np
import pytest

import runhooks as rh
from runhooks.summary import FileWriterCache


class Own(rh.SessionRunHook):
    """Writes the number of the step, with a writer that it gets in ``opens_in``."""

    def __init__(self, directory, opens_in="begin", raises_at=None, lost_at=None):
        self.directory, self.opens_in = directory, opens_in
        self.raises_at, self.lost_at = raises_at, lost_at
        self.open("__init__")

    def open(self, method):
        if method == self.opens_in:
            self.writer = FileWriterCache.get(self.directory)

    def begin(self):
        self.open("begin")

    def after_create_session(self, session, coord):
        self.open("after_create_session")

    def after_run(self, run_context, run_values):
        self.open("after_run")
        step = run_context.session.global_step
        self.writer.scalar("mine", float(step), step)
        if step == self.raises_at:
            raise ValueError("killed")
        if step == self.lost_at:
            self.lost_at = None
            raise rh.errors.AbortedError("lost")


def train(directory, *hooks, last_step=8):
    """Train with checkpoints at steps 0, 3, 6; a hook may be a function of the loss."""
    graph = rh.graph(lambda w: (w + 1.0, {"loss": w.sum()}), w=np.zeros(2))
    with graph.as_default():
        made = [it if isinstance(it, rh.SessionRunHook) else it(graph["loss"]) for it in hooks]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[*made, rh.StopAtStepHook(last_step=last_step)],
            save_checkpoint_steps=3,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run("train_op")


def train_and_fail(directory, *hooks, last_step=8):
    with pytest.raises(ValueError, match="killed"):
        train(directory, *hooks, last_step=last_step)


def steps(directory, tag="mine"):
    return rh.events.read(directory).only.scalars[tag].steps.tolist()


def starts(directory):
    """The steps at which sessions have started."""
    logs = rh.events.read(directory, kinds=["session_log"], purge=False).only.session_logs
    return [it.step for it in logs if it.value.status == rh.summary.SessionStatus.START]


PLACES = ["__init__", "begin", "after_create_session", "after_run"]


@pytest.mark.parametrize("opens_in", PLACES)
@pytest.mark.parametrize("in_one_process", [True, False])
def test_each_step_is_read_once_after_an_interruption(tmp_path, opens_in, in_one_process):
    mine = tmp_path / "mine"
    train_and_fail(tmp_path, Own(mine, opens_in, raises_at=5))
    if not in_one_process:
        FileWriterCache.clear()
    train(tmp_path, Own(mine, opens_in))
    assert steps(mine) == list(range(1, 9))
    assert starts(mine) == [4]


@pytest.mark.parametrize("opens_in", PLACES)
def test_each_step_is_read_once_after_a_session_is_lost(tmp_path, opens_in):
    mine = tmp_path / "mine"
    train(tmp_path, Own(mine, opens_in, lost_at=5))
    assert steps(mine) == list(range(1, 9))
    assert starts(mine) == [4]


def test_hooks_that_are_used_again_mark_the_next_session(tmp_path):
    hook = Own(tmp_path / "mine", "__init__", raises_at=5)
    train_and_fail(tmp_path, hook)
    hook.raises_at = None
    train(tmp_path, hook)
    assert steps(tmp_path / "mine") == list(range(1, 9))


@pytest.mark.parametrize("opens_in", ["__init__", "begin"])
def test_a_hook_of_an_evaluation_marks_where_the_training_resumed(tmp_path, opens_in):
    def evaluated_with(inner):
        return lambda loss: rh.EvaluationHook({"loss": loss}, every_n_steps=5, hooks=[inner])

    inner, mine = tmp_path / "inner", tmp_path / "mine"
    train_and_fail(tmp_path, evaluated_with(Own(inner, opens_in)), Own(mine, raises_at=5))
    FileWriterCache.clear()
    train(tmp_path, evaluated_with(Own(inner, opens_in)), Own(mine))
    assert steps(inner) == [5]
    assert starts(inner) == starts(mine) == [4]


def test_a_session_that_begins_anew_hides_nothing(tmp_path):
    for trial in range(3):
        graph = rh.graph(lambda w: w + 1.0, w=np.zeros(2))
        with graph.as_default():
            with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=2)]) as session:
                while not session.should_stop():
                    session.run("train_op")
                with FileWriterCache.get(tmp_path) as writer:
                    writer.scalar("mine", 0.5, trial)
    assert steps(tmp_path) == [0, 1, 2]


def test_a_writer_that_is_closed_and_had_again_hides_nothing_of_its_session(tmp_path):
    class Closes(Own):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            self.writer.close()

    train(tmp_path, Closes(tmp_path / "mine", "after_run"))
    assert steps(tmp_path / "mine") == list(range(1, 9))


def test_a_writer_that_is_had_late_hides_nothing_of_another_one_in_its_directory(tmp_path):
    class Late(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 4:
                FileWriterCache.get(tmp_path / "mine").scalar("late", 0.5, 4)

    with rh.summary.FileWriter(tmp_path / "mine") as writer:
        own = Own(tmp_path, "no method")
        own.writer = writer
        train(tmp_path / "run", own, Late())
    assert steps(tmp_path / "mine") == list(range(1, 9))
    assert steps(tmp_path / "mine", "late") == [4]


def test_loops_one_after_the_other_mark_their_own_directories_alone(tmp_path):
    writer = FileWriterCache.get(tmp_path / "script")
    writer.scalar("score", 1.0, 50)
    train(tmp_path / "a", Own(tmp_path / "a" / "mine"))
    train(tmp_path / "b", Own(tmp_path / "b" / "mine"), last_step=4)
    writer.scalar("score", 2.0, 60)
    writer.flush()
    assert steps(tmp_path / "script", "score") == [50, 60]
    assert steps(tmp_path / "a" / "mine") == list(range(1, 9))
    assert steps(tmp_path / "b" / "mine") == list(range(1, 5))


# Another test may have started threads of JAX, which the child does not touch.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_hides_nothing_of_the_one_before(tmp_path):
    class Forks(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step < 3:
                child = multiprocessing.get_context("fork").Process(
                    target=lambda step: FileWriterCache.get(tmp_path / "children").scalar(
                        "mine", 0.5, step
                    ),
                    args=[run_context.session.global_step],
                )
                child.start()
                child.join()

    train(tmp_path, Forks(), last_step=3)
    assert steps(tmp_path / "children") == [1, 2]
