import logging
import threading
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import checkpoint_step, checkpoints


def steps(path):
    return [checkpoint_step(checkpoint) for checkpoint in checkpoints(path)]


class Listener(rh.CheckpointSaverListener):
    """Records its calls; asks to stop after the checkpoint of ``stop_at``."""

    def __init__(self, stop_at=None):
        self.calls = []
        self.stop_at = stop_at

    def begin(self):
        self.calls.append("begin")

    def before_save(self, session, global_step_value):
        self.calls.append(("before", global_step_value))

    def after_save(self, session, global_step_value):
        self.calls.append(("after", global_step_value))
        return global_step_value == self.stop_at

    def end(self, session, global_step_value):
        self.calls.append(("end", global_step_value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of save_secs and save_steps"),
        ({"save_secs": 1, "save_steps": 1}, "got save_secs=1 and save_steps=1"),
        ({"save_steps": 0}, "save_steps must be above 0, got 0"),
        ({"save_steps": 1, "saver": "a", "scaffold": "b"}, "saver='a' and scaffold='b' cannot"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        rh.CheckpointSaverHook("dir", **arguments)


def test_it_is_called_after_all_others():
    assert rh.CheckpointSaverHook.last


def test_saves_at_the_start_every_so_often_and_at_the_end(train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=10), steps=25)
    assert steps(tmp_path) == [0, 10, 20, 25]
    assert Path(checkpoints(tmp_path)[-1]).name == "model.ckpt-25"


def test_saves_by_seconds(model, fake_clock, tmp_path):
    hook = rh.CheckpointSaverHook(tmp_path, save_secs=3, saver=rh.Saver(max_to_keep=None))
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(8):
            sess.run(model.train_op)
            fake_clock.advance(1)
    assert steps(tmp_path) == [0, 4, 7, 8]


def test_each_step_is_saved_once(train, tmp_path):
    listener = Listener()
    train(rh.CheckpointSaverHook(tmp_path, save_steps=2, listeners=[listener]), steps=4)
    assert [call for call in listener.calls if call[0] == "before"] == [
        ("before", 0),
        ("before", 2),
        ("before", 4),
    ]


def test_a_resumed_session_does_not_save_its_step_again(train, tmp_path):
    listener = Listener()
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=100, listeners=[listener])
    train(hook, steps=5)
    listener.calls.clear()
    train(hook, steps=1, checkpoint_dir=str(tmp_path))
    assert listener.calls == ["begin", ("before", 6), ("after", 6), ("end", 6)]


def test_a_damaged_checkpoint_of_the_step_is_saved_again(train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=5)
    (tmp_path / "model.ckpt-0" / "states.json").unlink()
    (tmp_path / "model.ckpt-5" / "states.json").unlink()
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=0)
    rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-0")


def test_a_checkpoint_that_another_run_left_is_not_taken_for_ones_own(model, train, tmp_path):
    train(rh.CheckpointSaverHook(tmp_path, save_steps=100), steps=5)
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=100)
    with rh.Graph().as_default():
        rh.Variable(7.0, name="another")
        rh.train.create_global_step()
        with rh.MonitoredSession(hooks=[hook]):
            saved = rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-0")
    assert saved.arrays["another"] == 7.0


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise ValueError("a value that cannot be read")


@pytest.mark.parametrize("at", [2, 3], ids=["after_run", "end"])
def test_summaries_that_are_lost_do_not_cost_the_checkpoint(model, tmp_path, at):
    lost = rh.summary.Summary([rh.summary.scalar_value("lost", Unreadable())])
    writer = rh.summary.FileWriterCache.get(tmp_path / "elsewhere")
    hooks = [rh.CheckpointSaverHook(tmp_path, save_steps=2)]
    with pytest.raises(ValueError, match="a value that cannot be read"):
        with rh.MonitoredSession(hooks=hooks) as sess:
            for step in range(1, at + 1):
                if step == at:
                    writer.add_summary(lost, step)
                sess.run(model.train_op)
    assert steps(tmp_path)[-1] == at


def test_a_saver_may_return_a_path(train, tmp_path, session_logs):
    class PathSaver(rh.Saver):
        def save(self, sess, save_path, global_step=None):
            return Path(super().save(sess, save_path, global_step))

    train(rh.CheckpointSaverHook(tmp_path, save_steps=10, saver=PathSaver()), steps=0)
    assert session_logs()[-1][1].checkpoint_path == str(tmp_path / "model.ckpt-0")


def test_the_loop_that_fails_saves_nothing_more(model, tmp_path):
    with pytest.raises(ValueError, match="oops"):
        with rh.MonitoredSession(hooks=[rh.CheckpointSaverHook(tmp_path, save_steps=10)]) as sess:
            sess.run(model.train_op)
            raise ValueError("oops")
    assert steps(tmp_path) == [0]


def test_listeners_are_called_in_their_order(train, tmp_path):
    listener = Listener()
    train(rh.CheckpointSaverHook(tmp_path, save_steps=3, listeners=[listener]), steps=4)
    assert listener.calls == [
        "begin",
        ("before", 0),
        ("after", 0),
        ("before", 3),
        ("after", 3),
        ("before", 4),
        ("after", 4),
        ("end", 4),
    ]


@pytest.mark.parametrize("stop_at", [0, 3])
def test_a_listener_may_stop_the_loop(train, tmp_path, stop_at):
    listeners = [Listener(stop_at), Listener()]
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=3, listeners=listeners)
    assert train(hook) == stop_at
    assert ("after", stop_at) in listeners[1].calls


def test_the_saver_and_the_name_may_be_chosen(train, tmp_path):
    hook = rh.CheckpointSaverHook(
        tmp_path, save_steps=1, saver=rh.Saver(max_to_keep=2), checkpoint_basename="weights"
    )
    train(hook, steps=5)
    assert [Path(path).name for path in checkpoints(tmp_path)] == ["weights-4", "weights-5"]


def test_the_saver_of_a_scaffold(model, tmp_path):
    scaffold = rh.Scaffold(saver=rh.Saver(max_to_keep=1))
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=1, scaffold=scaffold)
    with rh.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as sess:
        sess.run(model.train_op)
    assert steps(tmp_path) == [1]


def test_the_saver_of_the_graphs_collection(train, graph, tmp_path):
    graph.add_to_collection(rh.GraphKeys.SAVERS, rh.Saver(max_to_keep=1))
    train(rh.CheckpointSaverHook(tmp_path, save_steps=1), steps=3)
    assert steps(tmp_path) == [3]


def test_of_several_savers_one_must_be_named(graph, model, tmp_path):
    for _ in range(2):
        graph.add_to_collection(rh.GraphKeys.SAVERS, rh.Saver())
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=1)
    hook.begin()
    with pytest.raises(RuntimeError, match="holds 2 savers: give saver or scaffold"):
        hook.after_create_session(rh.Session(), rh.Coordinator())


def test_it_tells_what_it_has_saved(train, tmp_path, caplog, session_logs):
    caplog.set_level(logging.INFO, logger="runhooks")
    train(rh.CheckpointSaverHook(tmp_path, save_steps=2), steps=2)
    assert f"saved checkpoint {tmp_path / 'model.ckpt-2'}" in caplog.messages
    start, first, second = session_logs()
    assert (start[0], start[1].status) == (1, rh.summary.SessionStatus.START)
    assert (first[0], first[1].checkpoint_path) == (0, str(tmp_path / "model.ckpt-0"))
    assert (second[0], second[1].checkpoint_path) == (2, str(tmp_path / "model.ckpt-2"))
    assert second[1].status == rh.summary.SessionStatus.CHECKPOINT


@pytest.mark.parametrize("save_graph_def", [True, False])
def test_the_graph_is_written_once(model, tmp_path, save_graph_def, written):
    hook = rh.CheckpointSaverHook(tmp_path, save_steps=2, save_graph_def=save_graph_def)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    graphs = [event.graph_def for event in written() if event.graph_def]
    assert len(graphs) == int(save_graph_def)


def test_event_files_are_flushed_before_a_checkpoint_is_there(model, tmp_path, written):
    seen = []

    class LookingSaver(rh.Saver):
        def save(self, sess, save_path, global_step=None):
            # What is in the file now would survive a kill right after the save.
            seen.append([event.step for event in written() if event.summary])
            return super().save(sess, save_path, global_step)

    summary = rh.summary.scalar("loss", model.loss)
    hooks = [
        rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=LookingSaver()),
        rh.SummarySaverHook(1, output_dir=tmp_path, summary_op=summary),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(4):
            sess.run(model.train_op)
    assert seen == [[], [1, 2], [1, 2, 3, 4]]


def test_the_event_files_of_the_users_own_writers_are_flushed_too(model, tmp_path, written):
    class StillComputed:
        def __array__(self, dtype=None, copy=None):
            threading.Event().wait(0.05)  # a device that is late
            return np.array(1.0)

    class Listener(rh.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            seen.append([event.step for event in written() if event.summary])

    seen = []
    hook = rh.CheckpointSaverHook(tmp_path / "run", save_steps=1, listeners=[Listener()])
    with rh.summary.FileWriter(tmp_path) as writer, rh.MonitoredSession(hooks=[hook]) as sess:
        value = rh.summary.scalar_value("loss", StillComputed())
        writer.add_summary(rh.summary.Summary([value]), 1)
        sess.run(model.train_op)
    assert seen == [[], [1]]


def test_the_checkpoint_of_a_step_holds_what_other_hooks_made_of_it(model, tmp_path):
    class Counting(rh.SessionRunHook):
        count = 0

        def after_run(self, run_context, run_values):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    hooks = [rh.CheckpointSaverHook(tmp_path, save_steps=2), Counting()]
    with rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(2):
            sess.run(model.train_op)
    states = rh.checkpoint.read_checkpoint(tmp_path / "model.ckpt-2").states
    assert states["Counting"] == {"count": 2}


def test_a_directory_that_cannot_be_written_is_told_at_once(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        rh.MonitoredSession(hooks=[rh.CheckpointSaverHook(tmp_path / "file" / "a", save_steps=1)])
